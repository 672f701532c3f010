"""User ids for workers: outside the ranges of people, services and containers, and used by nobody else."""

from __future__ import annotations

import os
import pwd
import secrets
from pathlib import Path

from spade_daemon.errors import SpadeError

LOWEST, HIGHEST = 1_900_000_000, 2_100_000_000
ATTEMPTS = 50


def free_uid_base(count: int) -> int | None:
    """First of ``count`` ids that no account and no process has; ``None`` unless we are root.

    The block is drawn at random, so that two daemons on one host do not share ids.

    Raises:
        SpadeError: no such block was found.
    """
    if os.geteuid() != 0:
        return None
    for _ in range(ATTEMPTS):
        base = LOWEST + secrets.randbelow((HIGHEST - LOWEST) // count) * count
        block = range(base, base + count)
        if not any(uid in block for uid in _uids_in_use()) and not any(_has_account(uid) for uid in (base, block[-1])):
            return base
    raise SpadeError(f"no {count} unused user ids between {LOWEST} and {HIGHEST}: free some for the sandbox")


def _uids_in_use() -> set[int]:
    uids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            uids.add(folder.stat().st_uid)
        except OSError:
            continue  # it has ended
    return uids


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
