"""A two-layer model with a small vocabulary, made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainer.tiny import WORDS


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tied Qwen3-shaped model directory, without a tokenizer."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.1,
        eos_token_id=1,
        bos_token_id=None,
    )
    directory = tmp_path_factory.mktemp("base")
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}", encoding="utf-8")
    return directory
