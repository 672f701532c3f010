"""Run the probes of this folder behind a chosen set of walls, or none, and print what still succeeded.

This is how each wall is shown to hold alone, and how a probe is shown to prove anything at all.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from . import landlock, namespaces, probes, walls
from .syscalls import this_machine

ADDRESS_SPACE = 1 << 34
CPU_SECONDS = 20
_CONNECTION = socket.socketpair()
"""What a worker has as descriptor 3."""
UNAVAILABLE = 3
"""Exit status: this host does not offer the wall."""


def main() -> None:
    """``start.py probe <walls> <target>``: comma-separated wall names, and the target of the probes as JSON."""
    names, target = set(filter(None, sys.argv[2].split(","))), json.loads(sys.argv[3])
    walls.die_with_parent()
    signal.alarm(CPU_SECONDS)
    try:
        _put_up(names, int(target["uid"]))
    except OSError as error:
        print(error, file=sys.stderr)
        raise SystemExit(UNAVAILABLE) from error
    print(json.dumps(probes.succeeding(target)), flush=True)


def _put_up(names: set[str], uid: int) -> None:
    machine = this_machine()
    plan = walls.Plan(
        machine=machine,
        uid=uid if walls.UID in names else None,
        landlock_abi=landlock.version() if walls.LANDLOCK in names else 0,
        address_space=ADDRESS_SPACE,
        cpu_seconds=CPU_SECONDS,
    )
    missing = (names & {walls.UID, walls.LANDLOCK}) - set(plan.names())
    if missing or (walls.UID in names and not walls.may_change_user(uid)):
        raise OSError(f"not offered by this host: {', '.join(sorted(missing)) or walls.UID}")
    os.dup2(_CONNECTION[0].fileno(), 3)
    if walls.NAMESPACES in names:
        namespaces.enter(machine)
    walls.raise_walls(plan, names)
