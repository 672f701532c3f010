"""The checkpoint format, from the reader's side. The trainer writes it; ``manifest.json`` comes last.

``<run home>/checkpoints/v000001/`` holds a Hugging Face model: ``config.json``, the tokenizer's files,
``model.safetensors``, and ``manifest.json`` with the SHA-256 of each of them. A directory never changes once it is
there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from schemas.records import CheckpointManifest
from spade_daemon.errors import CheckpointError
from spade_daemon.policy.model_store import file_digest, tensor_shapes

MANIFEST = "manifest.json"
MAX_MANIFEST = 1 << 20


def checkpoint_directory(run_home: Path, version: int) -> Path:
    """Where checkpoint ``version`` of a run lies."""
    return run_home / "checkpoints" / f"v{version:06d}"


def read_manifest(path: Path) -> CheckpointManifest:
    """The manifest of the checkpoint directory ``path``.

    Raises:
        CheckpointError: it is missing or cannot be read.
    """
    return _parse(path, _manifest_bytes(path))


def manifest_digest(path: Path) -> str:
    """SHA-256 of ``manifest.json``, in hex: names the whole content of the checkpoint."""
    return hashlib.sha256(_manifest_bytes(path)).hexdigest()


def verify(path: Path, manifest: CheckpointManifest, *, deep: bool) -> None:
    """See that every file of ``manifest`` is there in full; with ``deep`` also that each has the recorded digest.

    Raises:
        CheckpointError: one line with the first file that is wrong.
    """
    for entry in manifest.files:
        if Path(entry.name).name != entry.name:
            raise CheckpointError(f"{path / MANIFEST} names a file outside its directory: {entry.name!r}")
        file = path / entry.name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing: the checkpoint is incomplete, use another version")
        if (size := file.stat().st_size) != entry.size:
            raise CheckpointError(f"{file} has {size} bytes, the manifest says {entry.size}: use another version")
        if deep and file_digest(file).sha256 != entry.sha256:
            raise CheckpointError(f"{file} differs from its manifest: it was changed or the disk is bad")
    if (found := len(tensor_shapes(path))) != manifest.tensors:
        raise CheckpointError(f"{path} holds {found} tensors, the manifest says {manifest.tensors}")


def open_checkpoint(path: Path, version: int, digest: str, *, deep: bool) -> CheckpointManifest:
    """Read and verify the checkpoint that an event named.

    Raises:
        CheckpointError: it is not the one that was published, or damaged.
    """
    content = _manifest_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(f"{path / MANIFEST} is not the one that was published: the directory was changed")
    manifest = _parse(path, content)
    if manifest.version != version:
        raise CheckpointError(f"{path} holds version {manifest.version}, not {version}")
    verify(path, manifest, deep=deep)
    return manifest


def _manifest_bytes(path: Path) -> bytes:
    file = path / MANIFEST
    try:
        if file.stat().st_size > MAX_MANIFEST:
            raise CheckpointError(f"{file} is larger than a manifest can be: the checkpoint is damaged")
        return file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{file}: {error.strerror}: the checkpoint is incomplete or gone") from error


def _parse(path: Path, content: bytes) -> CheckpointManifest:
    try:
        return CheckpointManifest.model_validate_json(content)
    except ValidationError as error:
        raise CheckpointError(f"{path / MANIFEST} cannot be read: {error.errors()[0]['msg']}") from error


__all__ = ["MANIFEST", "checkpoint_directory", "manifest_digest", "open_checkpoint", "read_manifest", "verify"]
