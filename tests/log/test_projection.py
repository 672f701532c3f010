from __future__ import annotations

import asyncio

import pytest

from spade_daemon.errors import LogError
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection, state_at
from spade_daemon.log.stored import DIGEST, digest
from spade_daemon.settings import Settings
from tests.log.facts import document, incident, logs, start


async def test_it_starts_with_everything_and_follows_what_comes(event_log: Log) -> None:
    await start(event_log)
    stored = await event_log.append(document(0, 0))
    projection = Projection(event_log)
    await projection.start()
    assert projection.state.sequence == stored.sequence
    assert projection.state.epoch == 1
    later = await event_log.append(incident("a"), cause=stored)
    await projection.wait_for(later.sequence)
    assert projection.state.sequence == later.sequence
    assert projection.state.digest() == (await state_at(event_log, later.sequence)).digest()
    await projection.stop()


async def test_every_state_on_the_way_can_be_had_again(event_log: Log) -> None:
    projection = Projection(event_log)
    await projection.start()
    assert projection.state.sequence == 0
    digests = []
    for payload in (document(0, 0), document(1, 0), incident("a")):
        stored = await event_log.append(payload)
        await projection.wait_for(stored.sequence)
        digests.append(projection.state.digest())
    assert len(set(digests)) == 3
    assert [(await state_at(event_log, sequence)).digest() for sequence in (1, 2, 3)] == digests
    await projection.stop()


async def test_changed_wakes_every_waiter(event_log: Log) -> None:
    projection = Projection(event_log)
    await projection.start()
    waiting = [asyncio.create_task(projection.changed()) for _ in range(3)]
    await asyncio.sleep(0)
    await event_log.append(incident("a"))
    async with asyncio.timeout(30):
        assert [state.sequence for state in await asyncio.gather(*waiting)] == [1, 1, 1]
    await projection.stop()


async def test_what_a_stale_writer_appended_does_not_count(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (old, new):
        await start(old, "boot-1")
        await start(new, "boot-2")
        with pytest.raises(LogError):
            await old.append(document(0, 0, title="stale"))
        fact = await new.append(document(0, 0, title="fact"))
        projection = Projection(new)
        await projection.start()
        assert projection.state.sequence == fact.sequence
        assert projection.state.stale == 1
        await projection.stop()


async def test_it_stops_loudly_where_it_cannot_read(event_log: Log) -> None:
    await start(event_log)
    projection = Projection(event_log)
    await projection.start()
    failed = asyncio.ensure_future(projection.failed())
    body = b'{"type": "run.paused", "version": 1}'
    await event_log._connection.js.publish("spade.main.run.paused.1", body, headers={DIGEST: digest(body)})
    await event_log.append(incident("after"))
    async with asyncio.timeout(30):
        for waiting in (projection.wait_for(3), projection.wait_for(2), projection.changed(), failed):
            with pytest.raises(LogError, match=r"cannot be folded beyond 1: event 2 .*run\.paused"):
                await waiting
    await projection.wait_for(1)
    assert projection.state.sequence == 1
    with pytest.raises(LogError, match=r"run\.paused"):
        await Projection(event_log).start()
