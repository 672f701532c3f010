"""From a delivered message to a finished reaction: heartbeat, retries with their owner, dead letters.

An infrastructure fault is tried again until ``PATIENCE`` is at its end. Anything else is a defect of ours or a
poisonous event: after ``ATTEMPTS`` it becomes a dead letter with its reason, so that one event never stops the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from faststream.nats import NatsMessage

from schemas.event import UnreadableEvent
from schemas.events import EventDead
from schemas.records import SlotTurn
from schemas.words import FAULT_OF, Fault
from spade_daemon.errors import EpisodeFault, LogError, SpadeError, StaleEpochError, SwapError
from spade_daemon.log.log import Log
from spade_daemon.log.stored import Stored, unpack
from spade_daemon.policy.server import ServerError
from spade_daemon.sandbox.selftest import SandboxRefused

ACK_WAIT = 60.0
"""Seconds after which the server gives a silent message to somebody else."""
HEARTBEAT = ACK_WAIT / 4
ATTEMPTS = 5
RETRY_DELAYS = (1.0, 5.0, 15.0, 30.0, 60.0)
"""Seconds before the next attempt, by number of failures so far; the last one repeats."""

PATIENCE = 500
"""Deliveries after which an event is dead whatever the reason, so that one which kills the daemon dies, too."""
FATAL: tuple[type[SpadeError], ...] = (StaleEpochError, SandboxRefused)

log = structlog.get_logger()

React = Callable[[Stored[Any]], Awaitable[None]]


@dataclass(slots=True)
class Delivery:
    """Delivers the messages of one durable consumer to one reaction."""

    name: str
    react: React
    bus: Log
    ready: Callable[[int], Awaitable[None]]
    """Waits until this process has folded the log up to a sequence."""
    is_fact: Callable[[Stored[Any]], bool]
    """Whether an event counts: what an older epoch wrote after a newer start is nobody's fact."""
    turn_of: Callable[[Stored[Any]], SlotTurn | None]
    """The slot's turn that an event belongs to, if any: a dead event ends it."""
    give_up: Callable[[SpadeError], None]
    """Ends the daemon: it was fenced off, or may not run untrusted code here any more."""
    failures: Counter[int] = field(default_factory=Counter)

    async def __call__(self, message: NatsMessage) -> None:
        """React to ``message`` and settle it: acknowledged, tried again later, or dead."""
        sequence = message.raw_message.metadata.sequence.stream
        try:
            stored = unpack(sequence, message.raw_message.subject, message.raw_message.headers, message.body)
        except (UnreadableEvent, LogError) as error:
            await self._bury(message, sequence, 1, str(error))
            return
        context = {"handler": self.name, "sequence": sequence, "correlation": stored.event.correlation}
        with structlog.contextvars.bound_contextvars(**context, **_subject_of(stored)):
            await self._settle(message, stored)

    async def _settle(self, message: NatsMessage, stored: Stored[Any]) -> None:
        began = time.perf_counter()
        delivered = message.raw_message.metadata.num_delivered
        if delivered > PATIENCE:
            await self._bury(message, stored.sequence, delivered, "it never came to an end", cause=stored)
            return
        try:
            async with _heartbeat(message):
                await self.ready(stored.sequence)
                if self.is_fact(stored):
                    await self.react(stored)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if (fatal := find(error, FATAL)) is not None:
                self.give_up(fatal)
            else:
                await self._failed(message, stored, error)
        else:
            self.failures.pop(stored.sequence, None)
            await message.ack()
            log.debug("event handled", type=stored.event.type, seconds=round(time.perf_counter() - began, 3))

    async def _failed(self, message: NatsMessage, stored: Stored[Any], error: BaseException) -> None:
        delivered = message.raw_message.metadata.num_delivered
        if is_infrastructure(error) and delivered < PATIENCE:
            delay = RETRY_DELAYS[-1] if find(error, (SwapError,)) else RETRY_DELAYS[2]
            log.warning("reaction waits for the infrastructure", error=str(error), delay=delay, delivered=delivered)
            await message.nack(delay=delay)
            return
        self.failures[stored.sequence] += 1
        count = self.failures[stored.sequence]
        log.error("reaction failed", attempt=count, of=ATTEMPTS, error=repr(error), exc_info=error)
        if count >= ATTEMPTS or delivered >= PATIENCE:
            await self._bury(message, stored.sequence, delivered, repr(error), cause=stored)
        else:
            await message.nack(delay=RETRY_DELAYS[min(count, len(RETRY_DELAYS)) - 1])

    async def _bury(
        self, message: NatsMessage, sequence: int, attempts: int, error: str, cause: Stored[Any] | None = None
    ) -> None:
        """Write the dead letter first, then let the message go: a crash between repeats it, and loses nothing."""
        dead = EventDead(
            handler=self.name,
            sequence=sequence,
            subject=message.raw_message.subject,
            attempts=attempts,
            error=error[:2000],
            turn=self.turn_of(cause) if cause else None,
        )
        await self.bus.append(dead, cause=cause)
        self.failures.pop(sequence, None)
        await message.reject()
        log.error("event is dead", sequence=sequence, error=error[:500])


def is_infrastructure(error: BaseException) -> bool:
    """Whether ``error`` is nobody's fault here: a server that is away, a host that starves."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_infrastructure(part) for part in error.exceptions)
    if isinstance(error, EpisodeFault):
        return FAULT_OF[error.stop] is Fault.INFRASTRUCTURE
    return isinstance(error, (LogError, SwapError, ServerError, OSError, TimeoutError))


def find(error: BaseException, kinds: tuple[type[SpadeError], ...]) -> SpadeError | None:
    """The first error of ``kinds`` in ``error``, also inside exception groups."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for part in error.exceptions if (found := find(part, kinds)) is not None), None)
    return error if isinstance(error, kinds) else None


@contextlib.asynccontextmanager
async def _heartbeat(message: NatsMessage) -> AsyncIterator[None]:
    """Tell the server that the work goes on, so that nobody else begins it."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            with contextlib.suppress(
                Exception
            ):  # the connection is away: the server will ask again, work is idempotent
                await message.raw_message.in_progress()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


def _subject_of(stored: Stored[Any]) -> dict[str, object]:
    data = stored.event.data
    names = ("environment", "round", "policy")
    return {name: getattr(data, name) for name in names if getattr(data, name, None) is not None}
