"""Fork servers and workers over the life of a daemon: start, self-test, hand out, replace, refuse."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from types import TracebackType
from typing import Self

import structlog

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox import selftest
from spade_daemon.sandbox.box.soften import World
from spade_daemon.sandbox.replies import Loaded, Reset, Step
from spade_daemon.sandbox.selftest import SandboxRefused
from spade_daemon.sandbox.server import ForkServer, ServerLost, ServerPlan
from spade_daemon.sandbox.users import free_uid_base
from spade_daemon.sandbox.worker import Limits, Worker
from spade_daemon.settings import SandboxSettings

log = structlog.get_logger()

__all__ = ["Loaded", "Reset", "Sandbox", "SandboxRefused", "Step", "Worker"]

RECHECK_SECONDS = 3600.0
PROBE_SLOTS = 8
"""Slots beyond ``max_workers``, for the self-test's own workers."""


class Sandbox:
    """Runs environments written by a language model. An async context manager; belongs to one event loop.

    Args:
        settings: limits.
        support: trusted modules (name to source) that environments may import; what their ``__all__`` lists is bound
            in each environment's namespace. They may import the standard library and those before them.
        variations: how many other worlds ``open`` offers for varied replay.
    """

    def __init__(
        self, settings: SandboxSettings, *, support: Mapping[str, str] | None = None, variations: int = 3
    ) -> None:
        self._settings = settings
        self._support = dict(support or {})
        self._variations = variations
        self._limits = Limits(settings.load_timeout, settings.step_timeout, settings.cpu_seconds)
        self._room = asyncio.Semaphore(settings.max_workers)
        self._slots = list(range(settings.max_workers + PROBE_SLOTS))
        self._servers: dict[int, ForkServer] = {}
        self._starting = asyncio.Lock()
        self._uid_base: int | None = None
        self._refusal: SandboxRefused | None = None
        self._recheck: asyncio.Task[None] | None = None
        self.walls: tuple[str, ...] = ()
        """Names of the walls in force; see ``box.walls``."""

    async def __aenter__(self) -> Self:
        """Start the first fork server and test the walls.

        Raises:
            SandboxRefused: untrusted code would not be contained here; the message says what failed.
        """
        self._uid_base = free_uid_base(len(self._slots))
        try:
            await self._server(0)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._recheck = asyncio.create_task(self._keep_checking())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all fork servers and workers."""
        if self._recheck is not None:
            self._recheck.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._recheck
        servers, self._servers = list(self._servers.values()), {}
        await asyncio.gather(*(server.close() for server in servers))

    @contextlib.asynccontextmanager
    async def open(self, source: str, *, variation: int = 0) -> AsyncIterator[Worker]:
        """A fresh process with ``source`` loaded; killed at the end of the context.

        Args:
            source: Python text of an environment. It is never parsed outside the worker.
            variation: 0 for play; 1 and up for the same under another clock, hash seed, entropy and address layout.

        Raises:
            EpisodeFault: the source does not load, or no worker could be started.
            SandboxRefused: a self-test has failed since the start.
        """
        if not 0 <= variation <= self._variations:
            raise ValueError(f"variation must be in 0..{self._variations}, got {variation}")
        async with self._room:
            server = await self._server(variation)
            async with self._worker(server) as worker:
                await worker.load(source)
                yield worker

    @contextlib.asynccontextmanager
    async def _worker(self, server: ForkServer) -> AsyncIterator[Worker]:
        slot = self._slots.pop()
        try:
            worker = Worker(await server.spawn(slot), self._limits)
        except BaseException:
            self._slots.append(slot)
            raise
        try:
            yield worker
        finally:
            await _to_the_end(self._bury(worker, slot))

    async def _bury(self, worker: Worker, slot: int) -> None:
        """The slot, and with it the uid, is free only once the process is gone."""
        await worker.close()
        self._slots.append(slot)

    async def _server(self, variation: int) -> ForkServer:
        """The running fork server of a variation; a lost one is replaced, and nothing runs before it is tested."""
        async with self._starting:
            if self._refusal is not None:
                raise self._refusal
            server = self._servers.get(variation)
            if server is not None and not server.lost:
                return server
            if server is not None:
                del self._servers[variation]
                await server.close()
            return await self._start(variation)

    async def _start(self, variation: int) -> ForkServer:
        if variation == 0:
            findings = await selftest.measure_walls(self._uid_base)
            self.walls = selftest.judge(findings, self._settings.min_walls)
        server = await self._launch(variation)
        try:
            await self._prove(server)
        except BaseException:
            await server.close()
            raise
        self._servers[variation] = server
        log.info("sandbox ready", variation=variation, walls=self.walls)
        return server

    async def _launch(self, variation: int) -> ForkServer:
        plan = ServerPlan(
            world=world(variation),
            hash_seed=variation * 4_241,
            memory_mb=self._settings.memory_mb,
            cpu_seconds=self._settings.cpu_seconds,
            uid_base=self._uid_base,
            namespaces=selftest.NAMESPACES in self.walls,
            support=self._support,
        )
        try:
            return await ForkServer.start(plan)
        except ServerLost as error:
            if variation == 0:
                raise SandboxRefused(str(error)) from error
            raise EpisodeFault(StopReason.SANDBOX_LOST, str(error)) from error

    async def _prove(self, server: ForkServer) -> None:
        """No probe may succeed in a worker of this server, opened like any other."""
        missing = set(self.walls) - set(server.walls)
        if missing:
            raise SandboxRefused(f"the fork server lacks walls that the self-test found: {', '.join(sorted(missing))}")
        async with selftest.targets(self._uid_base) as target, self._worker(server) as worker:
            await selftest.prove_sealed(worker, target)

    async def _keep_checking(self) -> None:
        """Repeat the self-test as long as the sandbox is open: a host can change under a daemon that runs for long."""
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            try:
                await self.check()
            except SandboxRefused as refusal:
                log.error("sandbox refuses from now on", reason=str(refusal))
            except (EpisodeFault, OSError) as error:
                log.warning("sandbox self-test could not run", reason=str(error))

    async def check(self) -> None:
        """Run the whole self-test again.

        Raises:
            SandboxRefused: and from now on ``open`` raises it too.
            EpisodeFault: the test itself could not run.
        """
        server = await self._server(0)
        try:
            findings = await selftest.measure_walls(self._uid_base)
            selftest.judge(findings, self._settings.min_walls)
            await self._prove(server)
        except SandboxRefused as refusal:
            self._refusal = refusal
            raise


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Finish ``work`` even when the caller is cancelled meanwhile; the cancellation is passed on afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def world(variation: int) -> World:
    """The surroundings of a variation: all differ in epoch, tick, entropy and process id."""
    digest = hashlib.sha256(f"world {variation}".encode()).digest()
    days = int.from_bytes(digest[:2], "big") % 2_000 if variation else 0
    return World(
        epoch=1_700_000_000 + days * 86_400 + variation * 11_213,
        tick_ns=1_000 * 7_919**variation % 5_000_000_000,
        entropy=int.from_bytes(digest[2:8], "big"),
        pid=1_000 + int.from_bytes(digest[8:10], "big"),
    )
