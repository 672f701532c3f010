"""Whether untrusted code is contained here, decided by behaviour and not by configuration.

Every probe runs first without walls (where it must succeed, or it proves nothing), then behind each wall alone, then
as an ordinary environment behind all of them (where none may succeed).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_daemon.errors import EpisodeFault, SpadeError
from spade_daemon.sandbox import server
from spade_daemon.sandbox.box import probes, walls
from spade_daemon.sandbox.worker import Worker

NAMESPACES = walls.NAMESPACES
MEASURED = (walls.NAMESPACES, walls.UID, walls.LANDLOCK, walls.SECCOMP)
"""Walls that stand on their own. Limits of resources bound a worker but keep nothing out."""
CRITICAL = ("read", "write", "tcp", "unix", "kill")
"""Each must be held by ``min_walls`` walls, any one of which would do."""
CONTROL = ("read", "kill", "fork")
"""These succeed on every host without walls; if not, the test itself is broken."""
CHECK_SECONDS = 60.0

Target = dict[str, Any]


class SandboxRefused(SpadeError):
    """Untrusted code would not be contained here: the daemon must not run any."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the probes did."""

    open: frozenset[str]
    """Probes that succeed without walls: only these prove anything."""
    alone: dict[str, frozenset[str]]
    """For each wall this host offers, the probes that succeed behind it alone."""

    def holding(self, probe: str) -> list[str]:
        """Walls that each hold this probe alone."""
        return [wall for wall, passed in self.alone.items() if probe not in passed]


def judge(findings: Findings, min_walls: int) -> tuple[str, ...]:
    """The walls in force. Pure.

    Raises:
        SandboxRefused: too few of them hold.
    """
    broken = [probe for probe in CONTROL if probe not in findings.open]
    if broken:
        raise SandboxRefused(f"the sandbox's self-test proves nothing: without walls {', '.join(broken)} fail too")
    if walls.SECCOMP not in findings.alone:
        raise SandboxRefused("this kernel offers no system-call filter: environments cannot be run safely here")
    for probe in CRITICAL:
        holding = findings.holding(probe)
        if probe in findings.open and len(holding) < min_walls:
            raise SandboxRefused(
                f"only {len(holding)} wall(s) ({', '.join(holding) or 'none'}) hold '{probe}', sandbox.min_walls is "
                f"{min_walls}: allow user namespaces or Landlock on this host, or lower sandbox.min_walls"
            )
    useful = [wall for wall, passed in findings.alone.items() if findings.open - passed]
    return (*useful, walls.RLIMITS)


async def measure_walls(uid_base: int | None) -> Findings:
    """Run the probes without walls and behind each wall alone, in processes that can run nothing else."""
    async with targets(uid_base) as target:
        unwalled, *walled = await asyncio.gather(*(_check(names, target) for names in ("", *MEASURED)))
    if unwalled is None:
        raise SandboxRefused("the sandbox's self-test does not run on this host")
    offered = {wall: passed for wall, passed in zip(MEASURED, walled, strict=True) if passed is not None}
    return Findings(unwalled, offered)


async def prove_sealed(worker: Worker, target: Target) -> None:
    """Run the probes as an environment.

    Raises:
        SandboxRefused: one of them succeeded, or they did not run.
    """
    source = await asyncio.to_thread(Path(probes.__file__).read_text, "utf-8")
    try:
        await worker.load(source)
        await worker.reset(0)
        answer = json.loads((await worker.step(json.dumps(target))).observation)
    except (EpisodeFault, ValueError) as error:
        raise SandboxRefused(f"the sandbox's self-test does not finish: {error}") from error
    if answer:
        raise SandboxRefused(
            f"the sandbox does not hold {', '.join(map(str, answer))}: environments cannot be run here"
        )


@contextlib.asynccontextmanager
async def targets(uid_base: int | None) -> AsyncIterator[Target]:
    """Something of the daemon's for each probe to reach; gone afterwards."""
    name = f"spade-probe-{secrets.token_hex(8)}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        unix.bind(f"\0{name}")
        for listener in (tcp, unix):
            listener.listen(64)
        yield {
            "pid": os.getpid(),
            "address": id(None),
            "port": tcp.getsockname()[1],
            "socket": name,
            "file": str(Path(tempfile.gettempdir()) / name),
            "uid": uid_base if uid_base is not None else -1,
        }


async def _check(names: str, target: Target) -> frozenset[str] | None:
    """Probes that succeed behind the named walls; ``None`` when the host does not offer them."""
    own = target | {"file": f"{target['file']}-{names or 'open'}"}
    process = await asyncio.create_subprocess_exec(
        *(server.interpreter(), "-s", "-S", "-P", str(server.PROGRAM), "probe", names, json.dumps(own)),
        env=server.environment(0),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return frozenset(json.loads(output)) if process.returncode == 0 else None
