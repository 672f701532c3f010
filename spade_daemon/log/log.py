"""The log of a run: append facts, read them in order. The one door to NATS for everything that must be remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError

from schemas.base import Payload
from schemas.event import Event
from schemas.events import RunStarted
from spade_daemon.errors import LogError
from spade_daemon.log import subjects
from spade_daemon.log.blobs import Blobs
from spade_daemon.log.connection import Connection
from spade_daemon.log.epochs import Epochs
from spade_daemon.log.mark import HighMark
from spade_daemon.log.reader import read_messages
from spade_daemon.log.stored import Stored, counts, make_event, unpack
from spade_daemon.log.stream import ensure_stream
from spade_daemon.log.writer import MAX_BATCH, Writer
from spade_daemon.settings import Settings

log = structlog.get_logger()
P = TypeVar("P", bound=Payload)
Cause = Stored[Payload] | Event[Payload] | None
JOIN_POLL = 0.1

__all__ = ["ConsumerLag", "Log", "LogInfo", "Stored", "counts"]


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """How far one handler is behind."""

    name: str
    waiting: int
    """Events that have not been delivered to it yet."""
    in_work: int
    """Events that were delivered and are not settled."""


@dataclass(frozen=True, slots=True)
class LogInfo:
    """Figures for people."""

    address: str
    run: str
    events: int
    last_sequence: int
    bytes: int
    blob_bytes: int


class Log:
    """The log of one run, as one process sees it. Many tasks may use it at once.

    ``epoch`` is 0 until ``take_epoch`` or ``join_epoch``; every event we append carries it.
    """

    def __init__(self, connection: Connection, run: str, blobs: Blobs, mark: HighMark) -> None:
        self.run = run
        self.epoch = 0
        self.blobs = blobs
        self._connection = connection
        self._stream = subjects.stream_name(run)
        self._writer = Writer(connection, run)
        self._epochs = Epochs()
        self._mark = mark

    @classmethod
    async def open(cls, settings: Settings, *, name: str, create: bool = True) -> Log:
        """Connect, and create the stream and the blob bucket if they are missing.

        Args:
            name: what the server calls this client in its listings.
            create: make the stream and the bucket if they are missing; a reader does not.

        Raises:
            LogError: no server in ``nats.connect_timeout``, a wrong password, a stream that is not ours, or a log
                that has lost what this machine saw in it before.
        """
        connection = await Connection.open(settings, name=name)
        try:
            await ensure_stream(connection, settings.run, settings.nats.replicas, create=create)
            blobs = await Blobs.open(connection, settings.run, settings.nats.replicas)
            log = cls(connection, settings.run, blobs, HighMark(settings.run_home() / "log.mark"))
            await log._check_mark()
        except BaseException:
            await connection.close()
            raise
        return log

    async def _check_mark(self) -> None:
        if mark := self._mark.read():
            self._mark.check(mark, await self._writer.at(mark.sequence))

    @property
    def connected(self) -> bool:
        """Whether the server is reachable at this moment; for health checks, never for decisions."""
        return bool(self._connection.nats.is_connected)

    async def close(self) -> None:
        """Close the connection."""
        self._mark.save()
        await self._connection.close()

    # Epochs

    async def take_epoch(self, boot: str, make: Callable[[int], RunStarted]) -> Stored[RunStarted]:
        """Begin a new epoch for ``boot``, or join the one it began if that is still the newest.

        Args:
            boot: identity of one ``spade up``.
            make: makes the ``run.started`` of the epoch number it is given; its ``boot`` must be ``boot``.

        Raises:
            StaleEpochError: ``boot`` began an epoch, and a newer one is in force.
        """
        while True:
            await self._refresh()
            if (epoch := self._epochs.of_boot(boot)) is not None:
                self._epochs.require(epoch)
                self.epoch = epoch
                return self._epochs.started[epoch]
            epoch = self._epochs.newest() + 1
            payload = make(epoch)
            if (payload.epoch, payload.boot) != (epoch, boot):
                raise LogError(f"run.started says epoch {payload.epoch} of {payload.boot}, not {epoch} of {boot}")
            event = self._event(payload, epoch, None)
            if stored := await self._writer.publish(event, after=0, scope=None):
                self._epochs.add(stored)

    async def join_epoch(self, boot: str | None, timeout: float) -> int:
        """Wait for the ``run.started`` of ``boot`` (``None``: of anybody, the newest), and write under its epoch.

        Raises:
            LogError: it did not come in ``timeout`` seconds.
            StaleEpochError: it came, but a newer epoch is in force.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            await self._refresh()
            epoch = (self._epochs.newest() or None) if boot is None else self._epochs.of_boot(boot)
            if epoch is not None:
                self._epochs.require(epoch)
                self.epoch = epoch
                return epoch
            if asyncio.get_running_loop().time() > deadline:
                raise LogError(
                    f"run {self.run} was not started{f' by boot {boot}' if boot else ''} within {timeout:g} s: "
                    "start it with `spade up`"
                )
            await asyncio.sleep(JOIN_POLL)

    async def _refresh(self) -> None:
        """Learn of the starts of this run that we do not know yet."""
        newest = await self._writer.last(subjects.filter_for(self.run, RunStarted.type))
        if newest is None:
            return
        for epoch in range(self._epochs.newest() + 1, newest.event.epoch):
            between = await self._writer.last(subjects.subject_of(self.run, RunStarted.type, str(epoch)))
            if between is None:
                raise LogError(f"run.started of epoch {epoch} is missing from the log: it is damaged")
            self._epochs.add(between)
        self._epochs.add(newest)

    # Writing

    async def append(self, payload: Payload, *, cause: Cause = None, exclusive: str | None = None) -> Stored:
        """Make ``payload`` a fact, unless it is one already.

        Args:
            cause: the event that this one answers.
            exclusive: a filter below the run (``*.*.s0.17``) under which no other fact may stand.

        Returns:
            The fact: ours, or with ``won=False`` the one that was there before.

        Raises:
            StaleEpochError: a newer epoch is in force; what we wrote, if anything, counts for nobody.
            LogError: the server refused, or it stayed uncertain for ``nats.connect_timeout`` what happened.
        """
        self._epochs.require(self.epoch)
        return await self._settle(self._event(payload, self.epoch, cause), exclusive)

    async def append_all(self, payloads: Sequence[Payload], *, cause: Cause = None) -> list[Stored]:
        """Make all ``payloads`` facts at once: all or none is stored, if none of them is a fact yet.

        If some are facts already, the missing ones are appended one by one.

        Returns:
            One fact for each payload, as ``append`` returns it.
        """
        if len(payloads) > MAX_BATCH:
            raise ValueError(f"{len(payloads)} events in one batch, at most {MAX_BATCH}")
        self._epochs.require(self.epoch)
        events = [self._event(payload, self.epoch, cause) for payload in payloads]
        if len({(event.type, event.key) for event in events}) < len(events):
            raise ValueError("a batch names the same fact twice")
        if len(events) > 1 and (stored := await self._writer.publish_batch(events)):
            await self._refresh()
            if self._epochs.fact(stored[-1]):
                self._mark.seen(stored[-1])
                return stored
        return [await self._settle(event, None) for event in events]

    async def _settle(self, event: Event[Payload], exclusive: str | None) -> Stored:
        """Publish until a fact stands there, whoever's it is."""
        subject = subjects.subject(self.run, event.data)
        scope = subjects.filter_under(self.run, exclusive) if exclusive else None
        after = 0
        while True:
            stored = await self._writer.publish(event, after, scope)
            standing = stored or await self._writer.last(scope or subject)
            await self._refresh()
            if standing is None:
                after = 0
            elif self._epochs.fact(standing):
                self._mark.seen(standing)
                ours = standing.event.id == event.id
                if not ours:
                    self._epochs.require(self.epoch)
                return Stored(standing.sequence, standing.event, won=ours)
            else:
                self._epochs.require(self.epoch)
                log.info("stale event overwritten", subject=subject, stale=standing.sequence)
                after = standing.sequence

    def _event(self, payload: Payload, epoch: int, cause: Cause) -> Event[Payload]:
        return make_event(payload, run=self.run, epoch=epoch, time=datetime.now(UTC), cause=cause)

    async def ensure_consumer(self, config: ConsumerConfig) -> None:
        """Create a durable consumer, or bring an existing one to this configuration.

        Raises:
            LogError: the server refuses it.
        """

        async def put() -> object:
            return await self._connection.js.add_consumer(self._stream, config)

        await self._connection.patiently(f"consumer {config.durable_name}", put)

    async def consumers(self) -> list[ConsumerLag]:
        """How far each durable consumer is behind, in order of their names."""

        async def get() -> list[ConsumerLag]:
            found = await self._connection.js.consumers_info(self._stream)
            lags = [
                ConsumerLag(info.name, info.num_pending or 0, info.num_ack_pending or 0)
                for info in found
                if info.config.durable_name
            ]
            return sorted(lags, key=lambda lag: lag.name)

        return await self._connection.patiently(f"asking for the consumers of {self._stream}", get)

    # Reading

    async def last(self, payload_type: type[P], key: str) -> Stored[P] | None:
        """The newest event of a type under ``key``, or ``None``. It may be stale: the fold decides what counts."""
        return await self._writer.last(subjects.subject_of(self.run, payload_type.type, key))

    async def read(self, start: int = 1, end: int | None = None) -> AsyncGenerator[Stored[Any], None]:
        """The events from ``start`` to ``end`` inclusive; without ``end``, to what is the end now.

        Raises:
            LogError: a gap, a damaged event, or a server that does not answer.
            UnreadableEvent: an event of another version of this program.
        """
        last = await self.last_sequence() if end is None else end
        async with aclosing(read_messages(self._connection, self._stream, start, last)) as messages:
            async for sequence, message in messages:
                yield unpack(sequence, message.subject, message.headers, message.data)

    async def follow(self, start: int) -> AsyncGenerator[Stored[Any], None]:
        """The events from ``start`` on, for ever, also across restarts of the server. Errors as in ``read``."""
        async with aclosing(read_messages(self._connection, self._stream, start, None)) as messages:
            async for sequence, message in messages:
                stored = unpack(sequence, message.subject, message.headers, message.data)
                self._mark.seen(stored)
                yield stored

    async def last_sequence(self) -> int:
        """Sequence of the last event; 0 in an empty log."""
        return (await self.info()).last_sequence

    async def info(self) -> LogInfo:
        """Size and position of the log."""

        async def get() -> LogInfo:
            state = (await self._connection.js.stream_info(self._stream)).state
            return LogInfo(
                address=self._connection.address,
                run=self.run,
                events=state.messages,
                last_sequence=state.last_seq,
                bytes=state.bytes,
                blob_bytes=await self.blobs.size(),
            )

        try:
            return await self._connection.patiently(f"asking for the size of {self._stream}", get)
        except NotFoundError as error:
            raise LogError(f"{self._stream} is gone from {self._connection.address}: restore it from a copy") from error
