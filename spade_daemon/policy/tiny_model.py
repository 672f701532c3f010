"""A tiny random model for tests: every part of the machinery runs with it in seconds, and it learns nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

SEED = 20250819
SCALE = 0.3
"""Standard deviation of the weights: large enough that tokens differ clearly in probability."""
SIZES = {
    "vocab_size": 49152,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 8192,
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")


def build(directory: Path, tokenizer: Path, seed: int = SEED) -> None:
    """Write a random Qwen3-shaped model of 3.2 million parameters; equal seeds give equal bytes.

    Args:
        directory: where to write.
        tokenizer: a SmolLM2 directory, whose tokenizer it takes.
        seed: of the weights.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

    end = AutoTokenizer.from_pretrained(tokenizer).eos_token_id
    config = Qwen3Config(
        **SIZES,
        tie_word_embeddings=True,
        architectures=["Qwen3ForCausalLM"],
        eos_token_id=end,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in AutoModelForCausalLM.from_config(config).named_parameters()}
    save_file(_weights(shapes, seed), directory / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(directory)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": end}) + "\n", encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, directory / name)


def _weights(shapes: dict[str, torch.Size], seed: int) -> dict[str, torch.Tensor]:
    generator = np.random.Generator(np.random.PCG64(seed))
    return {
        name: torch.ones(shape)
        if name.endswith("norm.weight")
        else torch.from_numpy(generator.standard_normal(tuple(shape), dtype=np.float32) * np.float32(SCALE))
        for name, shape in sorted(shapes.items())
    }


__all__ = ["SEED", "build"]
