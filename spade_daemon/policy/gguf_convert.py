"""GGUF to a Hugging Face directory, for the two architectures that our packaged models have (llama, qwen2).

Weights are dequantised tensor by tensor and renamed. The output head, where stored apart from the embedding, replaces
it: the model is tied, so that the server and the trainer know the same tensors by the same names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from spade_daemon.errors import ConfigError, MissingPartError

log = structlog.get_logger()

Weights = dict[str, torch.Tensor]

BLOCK_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
CONTROL, USER_DEFINED = 3, 4
"""GGUF token types: special tokens, and added tokens that are ordinary text."""
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Word boundaries before BPE that the Qwen2 vocabulary was trained with."""


@dataclass(frozen=True)
class Header:
    """The metadata of a GGUF file that a configuration needs."""

    architecture: str
    fields: dict[str, Any]

    def of_model(self, key: str) -> Any:
        """A field of the architecture, such as ``block_count``."""
        return self.fields[f"{self.architecture}.{key}"]


def convert(gguf_file: Path, directory: Path) -> None:
    """Write ``config.json``, ``model.safetensors`` (bfloat16) and the tokenizer of ``gguf_file`` into ``directory``.

    Raises:
        MissingPartError: the ``gguf`` package is absent.
        ConfigError: an architecture or a tensor that we do not know.
    """
    try:
        import gguf
    except ImportError as error:
        raise MissingPartError("the package gguf is not installed: pip install 'spade-daemon[cpu]'") from error
    reader = gguf.GGUFReader(str(gguf_file))
    header = _header(reader)
    log.info("converting model", source=gguf_file.name, architecture=header.architecture, tensors=len(reader.tensors))
    weights = {}
    tied = any(tensor.name == "output.weight" for tensor in reader.tensors)
    for tensor in reader.tensors:
        if tied and tensor.name == "token_embd.weight":
            continue
        values = np.array(_unpermuted(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type), header))
        weights[hf_name(tensor.name)] = torch.from_numpy(values).to(torch.bfloat16)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    vocabulary = weights["model.embed_tokens.weight"].shape[0]
    _write_json(directory / "config.json", model_config(header, vocabulary))
    ends = {int(header.fields[f"tokenizer.ggml.{name}_token_id"]) for name in ("eos", "padding")}
    _write_json(directory / "generation_config.json", {"eos_token_id": sorted(ends)})
    write_tokenizer(header, directory)


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor.

    Raises:
        ConfigError: unknown tensor.
    """
    if name in ("output.weight", "token_embd.weight"):
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    block, number, rest = (*name.split(".", 2), "", "")[:3]
    if block != "blk" or not number.isdecimal() or rest not in BLOCK_NAMES:
        raise ConfigError(f"GGUF tensor {name} is unknown: use a Hugging Face directory of this model instead")
    return f"model.layers.{number}.{BLOCK_NAMES[rest]}"


def model_config(header: Header, vocabulary: int) -> dict[str, Any]:
    """The content of ``config.json``."""
    get = header.of_model
    hidden, heads = int(get("embedding_length")), int(get("attention.head_count"))
    theta = float(get("rope.freq_base"))
    return {
        "architectures": [ARCHITECTURES[header.architecture]],
        "model_type": header.architecture,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": int(get("feed_forward_length")),
        "num_hidden_layers": int(get("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(get("attention.head_count_kv")),
        "head_dim": hidden // heads,
        "max_position_embeddings": int(get("context_length")),
        "rms_norm_eps": float(f"{get('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "bos_token_id": int(header.fields["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(header.fields["tokenizer.ggml.eos_token_id"]),
        "dtype": "bfloat16",
        "transformers_version": version("transformers"),
    }


def write_tokenizer(header: Header, directory: Path) -> None:
    """Build the byte-level BPE tokenizer from the GGUF vocabulary and save it with the chat template."""
    from transformers import PreTrainedTokenizerFast

    fields = header.fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=_byte_level_bpe(fields),
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        bos_token=None,
        unk_token=None,
        model_max_length=int(header.of_model("context_length")),
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = fields["tokenizer.chat_template"]
    fast.save_pretrained(directory)


def _byte_level_bpe(fields: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False, byte_fallback=False))
    match fields["tokenizer.ggml.pre"]:
        case "qwen2":
            tokenizer.normalizer = normalizers.NFC()
            split: Any = pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated")
            level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        case "smollm":
            split = pre_tokenizers.Digits(individual_digits=True)
            level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        case other:
            raise ConfigError(f"GGUF tokenizer {other} is unknown: use a Hugging Face directory instead")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types, strict=True):
        if kind == CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])
    return tokenizer


def _header(reader: Any) -> Header:
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture = str(fields.get("general.architecture"))
    if architecture not in ARCHITECTURES:
        raise ConfigError(f"GGUF architecture {architecture} is unknown: use a Hugging Face directory instead")
    return Header(architecture=architecture, fields=fields)


def _unpermuted(name: str, values: NDArray[np.float32], header: Header) -> NDArray[np.float32]:
    """Undo the interleaving of rotary halves that GGUF applies to llama's query and key projections."""
    if header.architecture != "llama" or not name.endswith(("attn_q.weight", "attn_k.weight")):
        return values
    heads = int(header.of_model("attention.head_count" if "attn_q" in name else "attention.head_count_kv"))
    rows = values.shape[0]
    return values.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


__all__ = ["Header", "convert", "hf_name", "model_config", "write_tokenizer"]
