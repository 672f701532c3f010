"""Process groups of a session, read from ``/proc``, and how to end them. Linux alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DEAD_STATES = frozenset("ZX")
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a session."""

    pid: int
    group: int
    """Process group; its leader is the process with this number."""


def parse_stat(text: str) -> tuple[str, int, int]:
    """State, process group and session of a ``/proc/<pid>/stat`` line. The name in it may hold spaces and brackets."""
    state, _parent, group, session, *_ = text.rpartition(")")[2].split()
    return state, int(group), int(session)


def members(session: int) -> list[Member]:
    """The living processes of a session; zombies do not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            state, group, its_session = parse_stat((entry / "stat").read_text(errors="replace"))
        except (OSError, ValueError):
            continue  # It ended while we looked.
        if its_session == session and state not in DEAD_STATES:
            found.append(Member(int(entry.name), group))
    return found


def is_copy_of(pid: int, parent: int) -> bool:
    """Whether a process was forked from ``parent`` and has not begun its own program yet."""
    try:
        return pid != parent and _command_line(pid) == _command_line(parent)
    except OSError:
        return False  # One of them ended while we looked.


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def leaderless(present: Iterable[Member]) -> list[Member]:
    """Those whose group's leader is gone: what a program left behind when it ended."""
    alive = list(present)
    pids = {member.pid for member in alive}
    return [member for member in alive if member.group not in pids]


def send(targets: Iterable[Member], number: signal.Signals) -> None:
    """Signal each of them; one that ended meanwhile is none of our business."""
    for member in targets:
        try:
            os.kill(member.pid, number)
        except ProcessLookupError:
            continue


def end_session(session: int, keep: int | None = None, grace: float = 0.0) -> list[Member]:
    """End every process of a session: SIGTERM, after ``grace`` seconds SIGKILL. Blocks until they are gone.

    Args:
        session: number of the session.
        keep: a process that stays, such as the caller.
        grace: seconds between the two signals; 0: SIGKILL at once.

    Returns:
        Those that had to be killed.
    """
    if grace > 0:
        send(_others(session, keep), signal.SIGTERM)
        deadline = time.monotonic() + grace
        while _others(session, keep) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    killed = _others(session, keep)
    # A process may fork between the look and the signal, so look again until nobody is left. Ten seconds bound the wait
    # for one that hangs inside the kernel.
    deadline = time.monotonic() + 10.0
    while (left := _others(session, keep)) and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return killed


def _others(session: int, keep: int | None) -> list[Member]:
    return [member for member in members(session) if member.pid != keep]
