"""How much CPU a worker got and how long it had to wait for it: a hang is told from an overloaded host by that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NANOSECONDS = 10**9
WAITING_SHARE = 0.5
"""A call that spent more than this share of its time waiting for a CPU was starved."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of one process so far, in seconds."""

    running: float
    waiting: float
    """Ready to run, but without a CPU."""


def host_pid(pidfd: int) -> int | None:
    """The process id behind a pidfd as ``/proc`` of this process counts; ``None`` once it is reaped."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pid":
            return int(value) if int(value) > 0 else None
    return None


def usage(pidfd: int) -> Usage | None:
    """Totals of the process, or ``None`` when it is gone or the kernel keeps no such figures."""
    try:
        pid = host_pid(pidfd)
        if pid is None:
            return None
        running, waiting, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return Usage(int(running) / NANOSECONDS, int(waiting) / NANOSECONDS)


def was_starved(before: Usage | None, after: Usage | None, elapsed: float) -> bool:
    """Whether a call that took ``elapsed`` seconds failed for want of a CPU rather than by its own doing.

    Without figures the answer is no: an environment must not become free of blame on a host that keeps none.
    """
    if before is None or after is None:
        return False
    return after.waiting - before.waiting > WAITING_SHARE * elapsed
