"""Messages of a stream in order, without a gap, at full speed; across reconnects and server restarts.

A pull consumer in the server's memory sends them to an inbox of ours. The position is ours alone: whenever anything
is odd, the consumer is thrown away and a new one begins at the next sequence. A gap that a fresh consumer shows too is
a gap in the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self

import orjson
import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spade_daemon.errors import LogError
from spade_daemon.log.connection import UNSURE, Connection

log = structlog.get_logger()

BATCH = 1000
EXPIRES, HEARTBEAT = 30.0, 5.0
SILENCE = 2.5 * HEARTBEAT
"""Without as much as a heartbeat for this long, the consumer or the connection is dead."""
ABANDONED = 60.0
NANOSECONDS = 1_000_000_000


class Interrupted(Exception):
    """The consumer is of no use any more; a new one will go on."""


class Pull:
    """One consumer of the stream, and the messages it has sent. Use as a context manager."""

    def __init__(self, connection: Connection, stream: str, start: int) -> None:
        self._connection = connection
        self._stream = stream
        self._start = start
        self._arrived: deque[Msg] = deque()
        self._wake = asyncio.Event()
        self._outstanding = 0
        self._broken = ""
        self._forget = connection.on_lost(self._lost)

    async def __aenter__(self) -> Self:
        nats = self._connection.nats
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._start,
            inactive_threshold=ABANDONED,
            mem_storage=True,
            num_replicas=1,
        )
        self._consumer = (await self._connection.js.add_consumer(self._stream, config=config)).name
        self._inbox = nats.new_inbox()
        self._subscription = await nats.subscribe(self._inbox, cb=self._receive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        if self._broken or self._connection.closed:
            return  # the server forgets an abandoned consumer by itself
        try:
            await self._subscription.unsubscribe()
            await self._connection.js.delete_consumer(self._stream, self._consumer)
        except (NatsError, TimeoutError) as problem:
            log.debug("consumer left behind", consumer=self._consumer, error=str(problem))

    async def next_messages(self) -> deque[Msg]:
        """Everything that has arrived and was not handed out yet; waits for at least one message.

        Raises:
            Interrupted: nothing more can come this way.
        """
        while not self._arrived:
            if self._broken:
                raise Interrupted(self._broken)
            if self._outstanding <= 0:
                await self._ask()
            self._wake.clear()
            try:
                async with asyncio.timeout(SILENCE):
                    await self._wake.wait()
            except TimeoutError:
                self._broken = f"silent for {SILENCE:g} s"
        arrived, self._arrived = self._arrived, deque()
        if self._outstanding <= 0 and not self._broken:
            await self._ask()  # the next batch travels while this one is worked on
        return arrived

    async def _ask(self) -> None:
        self._outstanding = BATCH
        request = {
            "batch": BATCH,
            "expires": int(EXPIRES * NANOSECONDS),
            "idle_heartbeat": int(HEARTBEAT * NANOSECONDS),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await self._connection.nats.publish(subject, orjson.dumps(request), reply=self._inbox)

    async def _receive(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers else None
        if status is None:
            self._outstanding -= 1
            self._arrived.append(message)
        elif status in ("404", "408"):
            self._outstanding = 0
        elif status != "100":
            self._broken = f"status {status} {message.headers.get('Description', '')}".strip()
        self._wake.set()

    def _lost(self) -> None:
        self._broken = "connection lost"
        self._wake.set()


async def read_messages(
    connection: Connection, stream: str, start: int, end: int | None
) -> AsyncGenerator[tuple[int, Msg], None]:
    """``(sequence, message)`` from ``start`` to ``end`` inclusive; for ever without ``end``.

    Raises:
        LogError: a gap, a log shorter than ``start`` or than what was read already, the connection closed for good,
            or (with ``end``) no progress within the connection's patience.
    """
    position = start
    loop = asyncio.get_running_loop()
    progress = loop.time()
    pause = 0.0
    while end is None or position <= end:
        try:
            await _check_length(connection, stream, position)
            async with Pull(connection, stream, position) as pull, aclosing(_in_order(pull, position)) as messages:
                async for sequence, message in messages:
                    position, progress, pause = sequence + 1, loop.time(), 0.0
                    yield sequence, message
                    if position == (end or 0) + 1:
                        return
        except (Interrupted, *UNSURE) as problem:
            if connection.closed:
                raise LogError(f"the connection to {connection.address} is closed: cannot read on") from problem
            if end is not None and loop.time() - progress > connection.patience:
                raise LogError(f"reading {stream} stands still at {position}: {problem!r}") from problem
            log.info("reading again", stream=stream, sequence=position, reason=str(problem) or repr(problem))
            await asyncio.sleep(pause)
            pause = min(1.0, 2 * pause + 0.05)
        except NatsError as problem:
            raise LogError(f"cannot read {stream} at {connection.address} on from {position}: {problem!r}") from problem


async def _in_order(pull: Pull, position: int) -> AsyncGenerator[tuple[int, Msg], None]:
    first = position
    while True:
        for message in await pull.next_messages():
            sequence = message.metadata.sequence.stream
            if sequence != position:
                if position == first:
                    raise LogError(
                        f"the log has a gap: event {position} is missing, the next is {sequence}; "
                        "restore the store from a copy"
                    )
                raise Interrupted(f"the client lost messages {position} to {sequence - 1}")
            yield sequence, message
            position += 1


async def _check_length(connection: Connection, stream: str, position: int) -> None:
    last = (await connection.js.stream_info(stream)).state.last_seq
    if position > last + 1:
        raise LogError(
            f"the log {stream} ends at {last}, but {position - 1} was read before: it was truncated or replaced; "
            "restore the store from a copy"
        )
