"""What runs below a process, read from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path


def descendants(root: int) -> set[int]:
    """Process ids of all children, their children, and so on. Zombies count."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(after_name[1]), []).append(int(folder.name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def open_descriptors() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def alive(pids: set[int]) -> set[int]:
    """Those that still run; a zombie has ended."""
    running = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.add(pid)
    return running


def wait_until_gone(pids: set[int], seconds: float = 30.0) -> set[int]:
    """Those that still run after a while; empty as soon as none does."""
    end = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.05)
    return alive(pids)


def nobody() -> int:
    """The id of a user without rights."""
    return 65534 if os.geteuid() == 0 else os.geteuid()
