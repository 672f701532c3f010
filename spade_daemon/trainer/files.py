"""Files that are complete or not there: streaming safetensors, and everything on the disk before its name is."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import structlog
import torch
from torch import Tensor

from spade_daemon.errors import CheckpointError
from spade_daemon.policy.model_store import TensorShapes, sync

log = structlog.get_logger()

CODES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
SIZES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}


def write_tensors(path: Path, shapes: TensorShapes, dtype: torch.dtype, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Write a safetensors file one tensor at a time, so that a model is never held twice.

    Args:
        shapes: names and shapes in the order in which ``tensors`` comes.
        dtype: every tensor is stored as this.

    Raises:
        CheckpointError: other tensors came than announced, or one is not finite.
    """
    with path.open("wb") as stream:
        stream.write(_header(shapes, dtype))
        expected = iter(shapes.items())
        for name, tensor in tensors:
            if (name, tuple(tensor.shape)) != next(expected, None):
                raise CheckpointError(f"{path}: tensor {name} {list(tensor.shape)} was not expected here")
            if not bool(torch.isfinite(tensor).all()):
                raise CheckpointError(f"{path}: tensor {name} is not finite; nothing was published")
            stored = tensor.to(dtype).cpu().contiguous()
            stored.reshape(-1).view(torch.uint8).numpy().tofile(stream)
        if (missing := next(expected, None)) is not None:
            raise CheckpointError(f"{path}: tensor {missing[0]} is missing")


def _header(shapes: TensorShapes, dtype: torch.dtype) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + int(torch.Size(shape).numel()) * SIZES[dtype]
        entries[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def tensor_bytes(shapes: TensorShapes, dtype: torch.dtype) -> int:
    """Size of all tensors as ``dtype``."""
    return sum(int(torch.Size(shape).numel()) for shape in shapes.values()) * SIZES[dtype]


def write_text(path: Path, text: str) -> None:
    """Write a small file and flush it to the disk."""
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def sync_tree(directory: Path) -> None:
    """Flush every file and folder below ``directory``, itself last."""
    for path in sorted(directory.rglob("*")):
        sync(path)
    sync(directory)


def require_space(directory: Path, needed: int, reserve_gb: float) -> None:
    """Refuse to begin what would fill the disk.

    Raises:
        CheckpointError: less than ``needed`` bytes plus ``reserve_gb`` (10^9 bytes each) are free.
    """
    free = shutil.disk_usage(directory).free
    wanted = needed + int(reserve_gb * 1e9)
    if free < wanted:
        raise CheckpointError(
            f"{directory} has {free / 1e9:.1f} GB free, a checkpoint needs {wanted / 1e9:.1f} (trainer.min_free_gb "
            f"{reserve_gb:g} included): free space, or lower trainer.keep_checkpoints or trainer.min_free_gb"
        )


def remove(directory: Path) -> bool:
    """Take a folder out of sight, then delete it. Best effort: what stays is tried again later."""
    hidden = directory.with_name(f".tmp-gone-{directory.name}")
    try:
        if not directory.name.startswith(".tmp-"):
            directory.rename(hidden)
            directory = hidden
        shutil.rmtree(directory)
    except OSError as error:
        log.warning("folder not removed", path=str(directory), error=str(error))
        return False
    return True
