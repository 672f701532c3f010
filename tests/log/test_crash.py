"""The server is killed while several processes append: what was acknowledged is there, once."""

from __future__ import annotations

import asyncio
from collections import Counter

from spade_daemon.log.log import Log
from spade_daemon.log.stored import Stored
from tests.log.facts import everything, incident, logs, start
from tests.nats_server import NatsServer

KILLS = 4
WRITERS = 3
TASKS = 4


async def test_no_acknowledged_event_is_lost_and_none_is_doubled(nats_server: NatsServer) -> None:
    stop = asyncio.Event()
    written: list[Stored] = []
    acknowledged: asyncio.Queue[None] = asyncio.Queue()

    async def write(log: Log, name: str) -> None:
        number = 0
        while not stop.is_set():
            written.append(await log.append(incident(f"{name}-{number}")))
            acknowledged.put_nowait(None)
            number += 1

    async with logs(nats_server.settings, WRITERS) as writers:
        await start(writers[0])
        for log in writers[1:]:
            await log.join_epoch(None, 5)
        tasks = [
            asyncio.create_task(write(log, f"w{index}-{task}"))
            for index, log in enumerate(writers)
            for task in range(TASKS)
        ]
        for _ in range(KILLS):
            for _ in range(40):
                await acknowledged.get()
            await nats_server.kill()
            await nats_server.start()
        stop.set()
        await asyncio.gather(*tasks)
        stored = await everything(writers[0])
    assert [each.sequence for each in stored] == list(range(1, len(stored) + 1))
    assert max(Counter((each.event.type, each.event.key) for each in stored).values()) == 1
    held = {each.sequence: each.event for each in stored}
    assert all(each.won and held[each.sequence] == each.event for each in written)
    assert len(stored) == 1 + len(written)


async def test_batches_are_whole_after_a_crash(nats_server: NatsServer) -> None:
    size = 25
    stop = asyncio.Event()
    done: list[list[Stored]] = []
    acknowledged: asyncio.Queue[None] = asyncio.Queue()

    async def write(log: Log, name: str) -> None:
        number = 0
        while not stop.is_set():
            done.append(await log.append_all([incident(f"{name}-{number}-{part}") for part in range(size)]))
            acknowledged.put_nowait(None)
            number += 1

    async with logs(nats_server.settings, 2) as writers:
        tasks = [asyncio.create_task(write(log, f"w{index}")) for index, log in enumerate(writers)]
        for _ in range(KILLS):
            for _ in range(5):
                await acknowledged.get()
            await nats_server.kill()
            await nats_server.start()
        stop.set()
        await asyncio.gather(*tasks)
        stored = await everything(writers[0])
    batches = Counter(each.event.key.rpartition("-")[0] for each in stored)
    assert set(batches.values()) == {size}
    assert len(batches) == len(done)
    for batch in done:
        places = [each.sequence for each in batch]
        assert places == list(range(places[0], places[0] + size))
        assert [stored[place - 1].event for place in places] == [each.event for each in batch]
