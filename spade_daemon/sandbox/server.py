"""The daemon's end of one fork server: start it, ask it for workers, learn how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault, SpadeError
from spade_daemon.sandbox.box.soften import World

log = structlog.get_logger()

PROGRAM = Path(__file__).parent / "box" / "start.py"
MAX_DATAGRAM = 64 << 10
MAX_CONFIG = 160 << 10
START_SECONDS = 60.0
SPAWN_SECONDS = 20.0
CLOSE_SECONDS = 5.0


class ServerLost(SpadeError):
    """A fork server did not start, or is gone."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker ended."""

    status: int
    """Wait status, as ``os.wait4`` gives it."""
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What a fork server is started with."""

    world: World
    hash_seed: int
    memory_mb: int
    cpu_seconds: float
    uid_base: int | None
    namespaces: bool
    support: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Spawned:
    """A live worker process, not yet trusted with anything nor ever to be."""

    pidfd: int
    connection: socket.socket
    exit: asyncio.Future[Exit | None]
    """Resolved when the server reports the end; ``None`` when the server itself is gone."""
    nonce: str


class ForkServer:
    """A running fork server. All methods belong to one event loop."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._spawning: dict[int, asyncio.Future[int]] = {}
        self._exits: dict[int, asyncio.Future[Exit | None]] = {}
        self._ready: asyncio.Future[tuple[str, ...]] = self._loop.create_future()
        self._next = 0
        self.lost = False
        self.walls: tuple[str, ...] = ()

    @classmethod
    async def start(cls, plan: ServerPlan) -> ForkServer:
        """Start the process and wait until it has everything loaded.

        The server is bound to the thread that calls this: when that thread ends, the kernel kills the server.

        Raises:
            ServerLost: it did not come up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = _launch(theirs, plan.hash_seed)
        ours.setblocking(False)
        server = cls(process, ours)
        server._loop.add_reader(ours, server._on_control)
        try:
            config = _config(plan)
            await server._send(config)
            async with asyncio.timeout(START_SECONDS):
                server.walls = await server._ready
        except (OSError, TimeoutError) as error:
            await server.close()
            raise ServerLost(f"the sandbox's fork server does not start: {error!r}") from error
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def pid(self) -> int:
        """Process id of the process we started."""
        return self._process.pid

    async def spawn(self, slot: int) -> Spawned:
        """Fork one sealed worker.

        Args:
            slot: decides its uid; no two live workers of all servers may share one.

        Raises:
            EpisodeFault: ``SANDBOX_LOST``, the server is gone.
        """
        self._next += 1
        identity, nonce = self._next, secrets.token_hex(8)
        future: asyncio.Future[int] = self._loop.create_future()
        self._spawning[identity] = future
        self._exits[identity] = exited = self._loop.create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if self.lost:
                raise ServerLost("the sandbox's fork server is gone")
            with theirs:
                request = {"id": identity, "slot": slot, "nonce": nonce}
                await self._send(json.dumps(request).encode(), theirs.fileno())
            async with asyncio.timeout(SPAWN_SECONDS):
                pidfd = await future
        except (OSError, TimeoutError, ServerLost) as error:
            ours.close()
            self._exits.pop(identity, None)
            raise EpisodeFault(StopReason.SANDBOX_LOST, f"no worker could be started: {error}") from error
        except BaseException:
            ours.close()
            if future.done() and not future.cancelled() and future.exception() is None:
                _discard([future.result()])
            raise
        finally:
            self._spawning.pop(identity, None)
        ours.setblocking(False)
        return Spawned(pidfd, ours, exited, nonce)

    async def close(self) -> None:
        """End the server and with it all its workers."""
        self._lose()
        try:
            await asyncio.to_thread(self._process.wait, CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._loop.remove_reader(self._control)
            self._control.close()
        error = ServerLost("the sandbox's fork server is gone")
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._spawning.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more
        for exited in self._exits.values():
            if not exited.done():
                exited.set_result(None)
        self._exits.clear()

    async def _send(self, datagram: bytes, *descriptors: int) -> None:
        while True:
            try:
                socket.send_fds(self._control, [datagram], descriptors)
            except BlockingIOError:
                await asyncio.sleep(0.001)  # its queue is full of our own requests
            else:
                return

    def _on_control(self) -> None:
        try:
            datagram, descriptors, _, _ = socket.recv_fds(self._control, MAX_DATAGRAM, 1)
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("fork server lost", pid=self.pid, error=str(error))
            self._lose()
            return
        if not datagram:
            if not self.lost:
                log.warning("fork server lost", pid=self.pid)
            self._lose()
            return
        self._take(json.loads(datagram), descriptors)

    def _take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "spawned" in message:
            future = self._spawning.get(message["spawned"])
            if future is None or future.done():
                _discard(descriptors)
            else:
                future.set_result(descriptors[0])
        elif "failed" in message:
            future = self._spawning.get(message["failed"])
            if future is not None and not future.done():
                future.set_exception(ServerLost(f"the host refuses another process ({message['why']})"))
        elif "exited" in message:
            exited = self._exits.pop(message["exited"], None)
            if exited is not None and not exited.done():
                exited.set_result(Exit(int(message["status"]), float(message["cpu"])))
        elif "ready" in message and not self._ready.done():
            self._ready.set_result(tuple(message["ready"]["walls"]))
        elif "refused" in message and not self._ready.done():
            self._ready.set_exception(ServerLost(f"the sandbox's fork server refuses: {message['refused']}"))


def _discard(pidfds: list[int]) -> None:
    """A worker arrived after its caller gave up: its connection is closed, so it ends itself."""
    for pidfd in pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def interpreter() -> str:
    """The Python to run, past any virtual environment's link: a worker needs the standard library alone."""
    return os.path.realpath(sys.executable)


def environment(hash_seed: int) -> dict[str, str]:
    """The whole environment of a fork server; nothing of the daemon's own is passed on."""
    return {"PYTHONHASHSEED": str(hash_seed), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC0"}


def _launch(control: socket.socket, hash_seed: int) -> subprocess.Popen[bytes]:
    # The control socket travels as standard input: no other descriptor of the daemon is passed on.
    command = [interpreter(), "-s", "-S", "-P", str(PROGRAM), "serve"]
    return subprocess.Popen(
        command,
        env=environment(hash_seed),
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=None,
        cwd="/",
        start_new_session=True,
    )


def _config(plan: ServerPlan) -> bytes:
    config = {
        "parent": os.getpid(),
        "world": asdict(plan.world),
        "memory_bytes": plan.memory_mb << 20,
        "cpu_seconds": max(1, round(plan.cpu_seconds)),
        "uid_base": plan.uid_base,
        "namespaces": plan.namespaces,
        "support": dict(plan.support),
    }
    datagram = json.dumps(config).encode()
    if len(datagram) > MAX_CONFIG:
        raise ServerLost(f"the sandbox's support modules have {len(datagram)} bytes, at most {MAX_CONFIG} fit")
    return datagram
