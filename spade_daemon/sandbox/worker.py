"""The daemon's handle on one worker: one request at a time, every reply distrusted, death by SIGKILL alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import JsonValue

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox import frames, replies
from spade_daemon.sandbox.box.forkserver import SETUP_FAILED
from spade_daemon.sandbox.frames import FrameError
from spade_daemon.sandbox.server import Exit, Spawned
from spade_daemon.sandbox.usage import Meter, Usage, was_starved

FREEZE_AFTER = 0.02
"""Seconds after a reply from which a worker without a request is stopped; a fast loop never pays for it."""
IDLE_SECONDS = 1800.0
"""A worker that got no request for so long is killed."""
MAX_STEPS = 1_000
DEATH_SECONDS = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Wall-clock seconds of the operations, and the CPU seconds of the whole episode."""

    load: float
    step: float
    cpu: float


class Worker:
    """One environment in one sealed process. Made by ``Sandbox.open``.

    Each method raises ``EpisodeFault`` whose ``stop`` says whose fault it is. After a fault other than an exception
    of the environment's own code, the process is dead and every further call raises the same fault.
    """

    loaded: replies.Loaded

    def __init__(self, spawned: Spawned, limits: Limits) -> None:
        self._spawned = spawned
        self._limits = limits
        self._meter = Meter(spawned.pidfd)
        self._loop = asyncio.get_running_loop()
        self._calls = 0
        self._steps = 0
        self._frozen = False
        self._timers: list[asyncio.TimerHandle] = []
        self._fault: EpisodeFault | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def load(self, source: str) -> replies.Loaded:
        """Wait for the walls, then run ``source`` behind them."""
        await self._sealed()
        value = await self._call("load", self._limits.load, source=source)
        self.loaded = await self._checked(replies.loaded, value)
        return self.loaded

    async def reset(self, seed: int) -> replies.Reset:
        """Begin an episode. The same seed gives the same episode."""
        value = await self._call("reset", self._limits.step, seed=seed)
        self._steps = 0
        return await self._checked(replies.reset, value)

    async def step(self, action: str) -> replies.Step:
        """Send one action."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise EpisodeFault(StopReason.TURN_LIMIT, f"an episode may have at most {MAX_STEPS} steps")
        return await self._checked(replies.step, await self._call("step", self._limits.step, action=action))

    async def solution(self) -> tuple[str, ...]:
        """The environment's reference actions for its current instance."""
        return await self._checked(replies.solution, await self._call("solution", self._limits.step))

    async def close(self) -> None:
        """Kill the process, wait until it is gone and give back its descriptors. Idempotent; not to be cancelled.

        Raises:
            EpisodeFault: ``SANDBOX_LOST``, the kernel did not end the process in time.
        """
        if self._closed:
            return
        self._closed = True
        self._cancel_timers()
        self._kill()
        try:
            await self._gone()
        except TimeoutError as error:
            raise EpisodeFault(StopReason.SANDBOX_LOST, "a worker outlived SIGKILL: look for a stuck disk") from error
        finally:
            self._spawned.connection.close()
            self._meter.close()
            os.close(self._spawned.pidfd)

    async def _sealed(self) -> None:
        """The first frame comes from our own code, before any foreign byte is in the process."""
        try:
            async with asyncio.timeout(self._limits.load):
                payload = await self._receive()
            kind, _ = frames.answer(payload, 0, self._spawned.nonce)
        except TimeoutError:
            raise self._dead(StopReason.STARVED, "a worker did not put up its walls in time") from None
        except (FrameError, OSError) as error:
            raise self._dead(StopReason.SANDBOX_LOST, f"a worker did not put up its walls: {error}") from error
        if kind != "ok":
            raise self._dead(StopReason.SANDBOX_LOST, "a worker could not put up its walls")

    async def _call(self, operation: str, limit: float, **fields: JsonValue) -> JsonValue:
        async with self._turn:
            if self._fault is not None:
                raise self._fault
            if self._closed:
                raise EpisodeFault(StopReason.SANDBOX_LOST, "the worker is closed")
            self._cancel_timers()
            try:
                return await self._exchange(operation, limit, fields)
            except asyncio.CancelledError:
                self._dead(StopReason.DEADLINE, "the call was given up before the environment answered")
                raise
            finally:
                if self._fault is None:
                    self._rest()

    async def _exchange(self, operation: str, limit: float, fields: dict[str, JsonValue]) -> JsonValue:
        before, started = self._meter.read(), self._loop.time()
        try:
            async with asyncio.timeout(limit):
                kind, value = await self._ask(operation, fields)
        except TimeoutError:
            raise self._overtime(operation, before, self._loop.time() - started) from None
        except FrameError as error:
            raise self._dead(StopReason.ENVIRONMENT_INVALID, f"in {operation} the environment {error}") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise await self._ended(operation) from error
        if kind == "ok":
            return value
        text = frames.printable(value)
        if kind == "invalid":
            raise EpisodeFault(StopReason.ENVIRONMENT_INVALID, f"{operation}: {text}")
        raise EpisodeFault(StopReason.ENVIRONMENT_CRASH, f"{operation} raised {text}")

    async def _ask(self, operation: str, fields: dict[str, JsonValue]) -> tuple[str, JsonValue]:
        self._refuse_unasked()
        self._thaw()
        self._calls += 1
        nonce = secrets.token_hex(8)
        request: dict[str, JsonValue] = {"id": self._calls, "nonce": nonce, "op": operation, **fields}
        await self._loop.sock_sendall(self._spawned.connection, frames.encode(request))
        return frames.answer(await self._receive(), self._calls, nonce)

    async def _receive(self) -> bytes:
        length = frames.payload_length(await self._read(frames.HEADER.size))
        return await self._read(length)

    async def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = await self._loop.sock_recv(self._spawned.connection, count - len(parts))
            if not part:
                raise ConnectionResetError("the worker closed its connection")
            parts += part
        return bytes(parts)

    def _refuse_unasked(self) -> None:
        try:
            early = self._spawned.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        if early:
            raise FrameError("sent bytes that nobody asked for")
        raise ConnectionResetError("the worker closed its connection")

    async def _checked(self, check: replies.Check[T], value: JsonValue) -> T:
        try:
            return check(value)
        except FrameError as error:
            raise self._dead(StopReason.ENVIRONMENT_INVALID, f"the environment {error}") from error

    def _overtime(self, operation: str, before: Usage | None, elapsed: float) -> EpisodeFault:
        starved = was_starved(before, self._meter.read(), elapsed)
        if starved:
            return self._dead(
                StopReason.STARVED, f"{operation} got too little CPU in {elapsed:.1f} s: the host is busy"
            )
        return self._dead(StopReason.ENVIRONMENT_HANG, f"{operation} did not return within {elapsed:.1f} s")

    async def _ended(self, operation: str) -> EpisodeFault:
        """The connection broke: kill what may be left and ask the fork server how it ended."""
        self._kill()
        try:
            async with asyncio.timeout(DEATH_SECONDS):
                ended = await asyncio.shield(self._spawned.exit)
        except TimeoutError:
            ended = None
        stop, message = verdict(ended, self._limits.cpu)
        return self._dead(stop, f"{operation}: {message}")

    def _dead(self, stop: StopReason, message: str) -> EpisodeFault:
        """Kill the process; the fault sticks."""
        self._cancel_timers()
        self._kill()
        if self._fault is None:
            self._fault = EpisodeFault(stop, message)
        return self._fault

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _rest(self) -> None:
        self._timers = [
            self._loop.call_later(FREEZE_AFTER, self._freeze),
            self._loop.call_later(IDLE_SECONDS, self._dead, StopReason.DEADLINE, "the worker was idle for too long"),
        ]

    def _freeze(self) -> None:
        self._frozen = True
        self._signal(signal.SIGSTOP)

    def _thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._spawned.pidfd, number)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []

    async def _gone(self) -> None:
        """Until the kernel says that the process has ended."""
        ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._spawned.pidfd, _resolve, ended)
        try:
            async with asyncio.timeout(DEATH_SECONDS):
                await ended
        finally:
            self._loop.remove_reader(self._spawned.pidfd)


def verdict(ended: Exit | None, cpu_limit: float) -> tuple[StopReason, str]:
    """Whose fault the end of a process is. Pure."""
    if ended is None:
        return StopReason.SANDBOX_LOST, "the sandbox's fork server is gone"
    if os.WIFEXITED(ended.status):
        code = os.WEXITSTATUS(ended.status)
        if code == SETUP_FAILED:
            return StopReason.SANDBOX_LOST, "the worker could not put up its walls"
        return StopReason.ENVIRONMENT_CRASH, f"the environment ended its process (exit status {code})"
    number = os.WTERMSIG(ended.status)
    if number == signal.SIGXCPU or ended.cpu_seconds >= cpu_limit:
        return StopReason.ENVIRONMENT_HANG, f"the environment used more than {cpu_limit:g} s of CPU"
    return StopReason.ENVIRONMENT_CRASH, f"the environment's process died of {signal.Signals(number).name}"


def _resolve(ended: asyncio.Future[Any]) -> None:
    if not ended.done():
        ended.set_result(None)
