"""Helpers of the policy's tests: a toy tokenizer, checkpoints as the trainer writes them, a free port."""

from __future__ import annotations

import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from schemas.records import CheckpointManifest
from spade_daemon.policy.checkpoint import MANIFEST, checkpoint_directory, manifest_digest
from spade_daemon.policy.model_store import file_digest
from spade_daemon.policy.server import Server
from spade_daemon.settings import Settings

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def toy_tokenizer(template: str = CHATML) -> Any:
    """One token for each byte, then ``<|im_start|>``, ``<|im_end|>`` and the end of text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={sign: number for number, sign in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>", "<|end|>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>")
    fast.chat_template = template
    return fast


def write_checkpoint(base: Path, home: Path, version: int, tensors: dict[str, torch.Tensor]) -> tuple[Path, str]:
    """A checkpoint as the trainer writes it; returns its directory and the digest of its manifest."""
    path = checkpoint_directory(home, version)
    path.mkdir(parents=True)
    for source in base.iterdir():
        if source.suffix in (".json", ".jinja") and not source.name.startswith("spade"):
            shutil.copyfile(source, path / source.name)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    manifest = CheckpointManifest(
        version=version,
        parent=version - 1,
        epoch=1,
        base_model=str(base),
        consumed_sequence=0,
        tensors=len(tensors),
        dtype="float32",
        files=tuple(file_digest(file) for file in sorted(path.iterdir())),
    )
    (path / MANIFEST).write_text(manifest.model_dump_json(), encoding="utf-8")
    return path, manifest_digest(path)


def perturbed(base: Path, seed: int, scale: float = 0.05) -> dict[str, torch.Tensor]:
    """The tensors of ``base`` with noise: another policy of the same shape."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + scale * torch.randn(value.shape, generator=generator)
        for name, value in load_file(base / "model.safetensors").items()
    }


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Running:
    """A real server and what belongs to it."""

    settings: Settings
    model: Path
    url: str
    first_version: int | None
    """What it said of its weights right after the start."""

    def client(self) -> Server:
        return Server(self.url, request_timeout=200.0, admin_timeout=100.0)
