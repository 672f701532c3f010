"""One holder at a time on this machine, released by the kernel when it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spade_daemon.errors import UserInputError

UP_LOCK = "up.lock"
"""Held by ``spade up`` in its home folder."""
STORE_LOCK = "store.lock"
"""Held by whoever runs a nats-server over the home folder's store: two of them would destroy it."""


@contextmanager
def home_lock(path: Path, remedy: str = "stop it with `spade down` first") -> Iterator[None]:
    """Hold the lock file ``path``. The file stays; only the lock on it matters.

    Raises:
        UserInputError: another process holds it; the message has its process id.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise UserInputError(f"{path} is held by process {pid}: this run is up already; {remedy}") from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def holder(path: Path) -> int | None:
    """Process id of whoever holds the lock file ``path``; ``None`` when nobody does."""
    try:
        with path.open("r", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                words = file.read().strip()
                return int(words) if words.isdecimal() else None
    except FileNotFoundError:
        pass
    return None
