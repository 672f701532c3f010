"""Small files that are either complete or absent, whatever happens while they are written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace(path: Path, content: bytes, mode: int, *, durable: bool = True) -> None:
    """Write ``content`` to ``path``: readers see the old file or the new one, also after a power cut.

    Without ``durable`` a power cut may bring back an older file or leave an empty one.
    """
    fresh = _write_beside(path, content, mode, durable=durable)
    fresh.replace(path)
    if durable:
        _sync_folder(path.parent)


def create_once(path: Path, content: bytes, mode: int) -> bytes:
    """Create ``path`` with ``content`` unless it exists; return what it holds now.

    Of several callers at once exactly one creates it, and all get the same bytes.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    fresh = _write_beside(path, content, mode, durable=True)
    try:
        path.hardlink_to(fresh)
    except FileExistsError:
        return path.read_bytes()
    finally:
        fresh.unlink()
    _sync_folder(path.parent)
    return content


def _write_beside(path: Path, content: bytes, mode: int, *, durable: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    return fresh


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
