"""How much CPU a worker got and how long it had to wait for it: a hang is told from an overloaded host by that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

NANOSECONDS = 10**9
WAITING_SHARE = 0.5
RUNNING_SHARE = 0.2
"""A call was starved that waited for a CPU more than the one share of its time and ran less than the other."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of one process so far, in seconds."""

    running: float
    waiting: float
    """Ready to run, but without a CPU."""


class Meter:
    """Reads the totals of one process. Holds a descriptor bound to that process, so a reused id cannot mislead it."""

    def __init__(self, pidfd: int) -> None:
        self._descriptor: int | None = None
        try:
            pid = _host_pid(pidfd)
            self._descriptor = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # already gone, or a kernel without these figures: read() says None

    def read(self) -> Usage | None:
        """Totals so far; ``None`` when the process is gone or the kernel keeps no such figures."""
        if self._descriptor is None:
            return None
        try:
            running, waiting, _ = os.pread(self._descriptor, 128, 0).split()
        except (OSError, ValueError):
            return None
        return Usage(int(running) / NANOSECONDS, int(waiting) / NANOSECONDS)

    def close(self) -> None:
        """Give the descriptor back. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def was_starved(before: Usage | None, after: Usage | None, elapsed: float) -> bool:
    """Whether a call that took ``elapsed`` seconds failed for want of a CPU rather than by its own doing.

    Without figures the answer is no: an environment must not become free of blame on a host that keeps none.
    """
    if before is None or after is None:
        return False
    waited, ran = after.waiting - before.waiting, after.running - before.running
    return waited > WAITING_SHARE * elapsed and ran < RUNNING_SHARE * elapsed


def _host_pid(pidfd: int) -> int:
    """The process id behind a pidfd as our own ``/proc`` counts, which differs inside a process namespace."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pid" and int(value) > 0:
            return int(value)
    raise ProcessLookupError("the process is gone")
