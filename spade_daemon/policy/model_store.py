"""Model directories: what makes one usable, and how a new one appears in the cache as a whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from schemas.base import Record
from schemas.records import FileDigest
from spade_daemon.errors import CheckpointError, ConfigError

log = structlog.get_logger()

MANIFEST = "spade-model.json"
"""Written last into a directory we made: its presence means that the rest is complete."""
MAX_HEADER = 64 << 20
"""Largest safetensors header we read: more is damage, not a model."""

TensorShapes = dict[str, tuple[int, ...]]


class ModelManifest(Record):
    """What lies in a cached model directory and where it came from."""

    schema_version: int = 1
    name: str
    source: str
    files: tuple[FileDigest, ...]


class TensorEntry(BaseModel):
    """What a safetensors header says of one tensor."""

    model_config = ConfigDict(frozen=True)

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _Index(BaseModel):
    """Which file holds which tensor."""

    weight_map: dict[str, str]


_ENTRIES = TypeAdapter(dict[str, TensorEntry])
_INDEX = TypeAdapter(_Index)


def file_digest(path: Path) -> FileDigest:
    """Name, SHA-256 and size of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return FileDigest(name=path.name, sha256=digest.hexdigest(), size=path.stat().st_size)


def sync(path: Path) -> None:
    """Flush a file or a directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def safetensors_header(path: Path) -> dict[str, TensorEntry]:
    """The header of a safetensors file, without ``__metadata__``.

    Raises:
        CheckpointError: not a safetensors file, or shorter than its header says.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if not 0 < length <= min(MAX_HEADER, size - 8):
            raise CheckpointError(f"{path} is not a safetensors file: write it again")
        try:
            header = json.loads(stream.read(length))
        except ValueError as error:
            raise CheckpointError(f"{path} has a damaged header: write it again") from error
    entries = _entries(header, path)
    end = max((entry.data_offsets[1] for entry in entries.values()), default=0)
    if size != 8 + length + end:
        raise CheckpointError(f"{path} has {size} bytes, its header wants {8 + length + end}: write it again")
    return entries


def _entries(header: Any, path: Path) -> dict[str, TensorEntry]:
    if isinstance(header, dict):
        header.pop("__metadata__", None)
    try:
        return _ENTRIES.validate_python(header)
    except ValidationError as error:
        raise CheckpointError(f"{path} has a damaged header: write it again") from error


def tensor_shapes(directory: Path) -> TensorShapes:
    """Names and shapes of all tensors in the safetensors files of ``directory``, read from the headers alone.

    Raises:
        CheckpointError: no safetensors, or a damaged one.
    """
    files = _weight_files(directory)
    if not files:
        raise CheckpointError(f"{directory} holds no safetensors: it is not a model")
    return {name: entry.shape for file in files for name, entry in safetensors_header(file).items()}


def _weight_files(directory: Path) -> list[Path]:
    """The files that an index names, where there is one: some models carry a second copy in another form."""
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(directory.glob("*.safetensors"))
    try:
        names = set(_INDEX.validate_json(index.read_bytes()).weight_map.values())
    except ValidationError as error:
        raise CheckpointError(f"{index} is damaged: fetch the model again") from error
    missing = sorted(name for name in names if Path(name).name != name or not (directory / name).is_file())
    if missing:
        raise CheckpointError(f"{directory / missing[0]} is missing: fetch the model again")
    return sorted(directory / name for name in names)


def check_model_directory(path: Path) -> None:
    """See that a directory is a Hugging Face model that vLLM and the trainer can load.

    Raises:
        ConfigError: one line with what is missing.
    """
    config = path / "config.json"
    try:
        parsed = json.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"model.name {path} has no readable config.json: give a Hugging Face directory") from error
    except ValueError as error:
        raise ConfigError(f"{config} is not JSON: repair it or fetch the model again") from error
    if not isinstance(parsed, dict) or "model_type" not in parsed:
        raise ConfigError(f"{config} names no model_type: it is not a Hugging Face model")
    if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise ConfigError(f"model.name {path} has no tokenizer (tokenizer.json): copy it from the base model")
    try:
        tensor_shapes(path)
    except CheckpointError as error:
        raise ConfigError(f"model.name {path}: {error}") from error


def find_complete(cache: Path, name: str) -> Path | None:
    """The cached directory of ``name`` whose files are all there with their sizes, or ``None``."""
    for directory in sorted(cache.glob(f"{name}-*")):
        manifest = read_model_manifest(directory)
        if manifest is not None and manifest.name == name and _sizes_match(directory, manifest):
            return directory
    return None


def read_model_manifest(directory: Path) -> ModelManifest | None:
    """The manifest of a cached directory; ``None`` where there is none that can be read."""
    try:
        return ModelManifest.model_validate_json((directory / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None


def _sizes_match(directory: Path, manifest: ModelManifest) -> bool:
    for entry in manifest.files:
        file = directory / entry.name
        if not file.is_file() or file.stat().st_size != entry.size:
            log.warning("cached model is damaged and will be made again", path=str(file))
            return False
    return True


@contextmanager
def exclusive(cache: Path, name: str) -> Iterator[None]:
    """Hold the lock of ``name`` in ``cache``: of several processes one makes the model, the others wait for it."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that makes the model", model=name)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def publish(cache: Path, name: str, source: str, digest: str, build: Callable[[Path], None]) -> Path:
    """Make ``<cache>/<name>-<digest>`` by ``build`` in a temporary directory, then rename it into place.

    Args:
        build: fills the directory that it is given with plain files.
        digest: what the result depends on; its first twelve digits go into the directory's name.
    """
    final = cache / f"{name}-{digest[:12]}"
    work = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".partial", dir=cache))
    try:
        build(work)
        check_model_directory(work)
        entries = tuple(file_digest(path) for path in sorted(work.iterdir()))
        manifest = ModelManifest(name=name, source=source, files=entries)
        (work / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
        for path in (*sorted(work.iterdir()), work):
            sync(path)
        work.chmod(0o755)
        if final.exists():
            shutil.rmtree(final)
        work.rename(final)
        sync(cache)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


__all__ = [
    "MANIFEST",
    "ModelManifest",
    "TensorEntry",
    "TensorShapes",
    "check_model_directory",
    "exclusive",
    "file_digest",
    "find_complete",
    "publish",
    "read_model_manifest",
    "safetensors_header",
    "sync",
    "tensor_shapes",
]
