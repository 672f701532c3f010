from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from nats.aio.msg import Msg

from schemas.event import UnreadableEvent
from spade_daemon.errors import LogError
from spade_daemon.log import reader
from spade_daemon.log.connection import Connection
from spade_daemon.log.log import Log
from spade_daemon.log.reader import Pull, read_messages
from spade_daemon.log.stored import DIGEST, Stored, digest
from spade_daemon.settings import Settings
from tests.log.facts import everything, incident, start
from tests.nats_server import NatsServer


async def fill(log: Log, count: int, prefix: str = "i") -> list[Stored]:
    stored = []
    for begin in range(0, count, 1000):
        names = [f"{prefix}{number}" for number in range(begin, min(begin + 1000, count))]
        stored += await log.append_all([incident(name) for name in names])
    return stored


async def test_reading_gives_what_was_appended_in_order(event_log: Log) -> None:
    written = await fill(event_log, 2500)
    assert await everything(event_log) == written
    assert await everything(event_log, 2400) == written[2399:]
    assert await everything(event_log, 11, 20) == written[10:20]
    assert await everything(event_log, 2501) == []
    assert await everything(event_log, 5, 4) == []


async def test_an_empty_log_reads_as_nothing(event_log: Log) -> None:
    assert await everything(event_log) == []
    assert await event_log.last_sequence() == 0


async def test_reading_ends_at_what_was_the_end(event_log: Log) -> None:
    written = await fill(event_log, 10)
    seen = []
    async with aclosing(event_log.read()) as events:
        async for stored in events:
            seen.append(stored)
            await event_log.append(incident(f"later-{len(seen)}"))
    assert seen == written


async def test_following_goes_on_with_what_comes(event_log: Log) -> None:
    await fill(event_log, 5)
    seen: list[int] = []
    done = asyncio.Event()

    async def follow() -> None:
        async with aclosing(event_log.follow(3)) as events:
            async for stored in events:
                seen.append(stored.sequence)
                if stored.event.key == "last":
                    done.set()

    task = asyncio.create_task(follow())
    for number in range(20):
        await event_log.append(incident(f"live-{number}"))
    await event_log.append(incident("last"))
    async with asyncio.timeout(30):
        await done.wait()
    task.cancel()
    assert seen == list(range(3, 27))


async def test_following_survives_restarts_of_the_server(nats_server: NatsServer) -> None:
    settings = nats_server.settings
    log = await Log.open(settings, name="writer")
    watcher = await Log.open(settings, name="watcher")
    await fill(log, 5)
    seen: list[str] = []
    last = asyncio.Event()

    async def follow() -> None:
        async with aclosing(watcher.follow(1)) as events:
            async for stored in events:
                seen.append(stored.event.key)
                if stored.event.key == "last":
                    last.set()

    task = asyncio.create_task(follow())
    expected = [f"i{number}" for number in range(5)]
    for number in range(3):
        await nats_server.kill()
        await nats_server.start()
        await log.append(incident(f"live-{number}"))
        expected.append(f"live-{number}")
    await log.append(incident("last"))
    async with asyncio.timeout(60):
        await last.wait()
    task.cancel()
    assert seen == [*expected, "last"]
    await log.close()
    await watcher.close()


async def test_following_survives_the_loss_of_its_consumer(event_log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SILENCE", 1.0)
    await fill(event_log, 3)
    js, stream = event_log._connection.js, event_log._stream
    async with asyncio.timeout(30), aclosing(event_log.follow(1)) as events:
        for _ in range(3):
            await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)
        for consumer in await js.consumers_info(stream):
            await js.delete_consumer(stream, consumer.name)
        await event_log.append(incident("after"))
        assert (await waiting).event.key == "after"


async def test_a_quiet_time_longer_than_a_request_is_no_end(event_log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("EXPIRES", 0.4), ("HEARTBEAT", 0.1), ("SILENCE", 20.0)):
        monkeypatch.setattr(reader, name, seconds)
    await fill(event_log, 3)
    async with asyncio.timeout(15), aclosing(event_log.follow(1)) as events:
        for _ in range(3):
            await anext(events)
        for number in range(3):
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.6)
            await event_log.append(incident(f"late-{number}"))
            assert (await waiting).event.key == f"late-{number}"


async def test_messages_that_the_client_loses_are_read_again(event_log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    written = await fill(event_log, 200)
    receive = Pull._receive
    dropped: set[int] = set()

    async def careless(self: Pull, message: Msg) -> None:
        status = message.headers and message.headers.get("Status")
        if not status and (place := message.metadata.sequence.stream) % 50 == 7 and place not in dropped:
            dropped.add(place)
            return
        await receive(self, message)

    monkeypatch.setattr(Pull, "_receive", careless)
    assert await everything(event_log) == written
    assert dropped == {7, 57, 107, 157}


async def test_a_gap_in_the_log_is_found(nats_settings: Settings) -> None:
    connection = await Connection.open(nats_settings, name="test")
    await connection.js.add_stream(name="holes", subjects=["holes"])
    for _ in range(6):
        await connection.js.publish("holes", b"x")
    await connection.js.delete_msg("holes", 4)
    seen = []
    with pytest.raises(LogError, match=r"gap: event 4 is missing, the next is 5"):
        async with aclosing(read_messages(connection, "holes", 1, 6)) as messages:
            async for sequence, _ in messages:
                seen.append(sequence)
    assert seen == [1, 2, 3]
    await connection.close()


async def test_a_log_that_lost_its_end_is_found(event_log: Log) -> None:
    await fill(event_log, 3)
    with pytest.raises(LogError, match=r"ends at 3, but 7 was read before"):
        await anext(event_log.follow(8))


async def test_a_damaged_body_is_found_at_its_place(event_log: Log) -> None:
    await start(event_log)
    good = (await event_log.append(incident("a"))).event.encode()
    await event_log._connection.js.publish(
        "spade.main.incident.raised.b", good.replace(b"message", b"massage"), headers={DIGEST: digest(good)}
    )
    seen = []
    with pytest.raises(LogError, match=r"event 3 .*digest"):
        async for stored in event_log.read():
            seen.append(stored.sequence)
    assert seen == [1, 2]
    with pytest.raises(LogError, match=r"event 3 .*digest"):
        await event_log.append(incident("b"))


async def test_an_event_of_a_later_version_stops_the_reader(event_log: Log) -> None:
    await start(event_log)
    body = b'{"type": "run.paused", "version": 1}'
    await event_log._connection.js.publish("spade.main.run.paused.1", body, headers={DIGEST: digest(body)})
    with pytest.raises(UnreadableEvent, match=r"event 2 .*unknown event type 'run\.paused'"):
        await everything(event_log)


async def test_a_stream_that_is_deleted_under_the_reader_is_an_error(event_log: Log) -> None:
    await fill(event_log, 2)
    async with asyncio.timeout(30), aclosing(event_log.follow(1)) as events:
        for _ in range(2):
            await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)
        await event_log._connection.js.delete_stream(event_log._stream)
        with pytest.raises(LogError, match="cannot read spade-main"):
            await waiting
    with pytest.raises(LogError, match="gone"):
        await event_log.info()


async def test_no_consumer_is_left_behind(event_log: Log) -> None:
    await fill(event_log, 20)
    await everything(event_log)
    async with aclosing(event_log.follow(1)) as events:
        await anext(events)
    assert await event_log._connection.js.consumers_info(event_log._stream) == []


async def test_a_closed_log_says_so(nats_settings: Settings) -> None:
    log = await Log.open(nats_settings, name="test")
    await fill(log, 3)
    events = log.follow(1)
    for _ in range(3):
        await anext(events)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0.05)
    await log.close()
    with pytest.raises(LogError, match="closed"):
        async with asyncio.timeout(30):
            await waiting
    with pytest.raises(LogError, match="closed"):
        await log.append(incident("x"))
