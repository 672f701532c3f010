from __future__ import annotations

import asyncio

import pytest

from spade_daemon.errors import LogError, StaleEpochError
from spade_daemon.log.log import Log
from spade_daemon.log.stored import Stored
from spade_daemon.settings import Settings
from tests.log.facts import everything, incident, logs, start, starting


async def test_each_boot_begins_the_next_epoch(nats_settings: Settings) -> None:
    async with logs(nats_settings, 3) as opened:
        for number, log in enumerate(opened, start=1):
            started = await start(log, f"boot-{number}")
            assert (started.won, started.event.epoch, started.event.data.epoch, log.epoch) == (
                True,
                number,
                number,
                number,
            )


async def test_processes_of_one_boot_share_its_epoch(nats_settings: Settings) -> None:
    async with logs(nats_settings, 5) as opened:
        started = await asyncio.gather(*(start(log, "boot-1") for log in opened))
        assert len({(each.sequence, each.event.id) for each in started}) == 1
        assert {log.epoch for log in opened} == {1}
        assert await opened[0].last_sequence() == 1


async def test_boots_that_start_at_the_same_time_get_epochs_of_their_own(nats_settings: Settings) -> None:
    async with logs(nats_settings, 6) as opened:
        boots = (start(log, f"boot-{number}") for number, log in enumerate(opened))
        results = await asyncio.gather(*boots, return_exceptions=True)
        stored = await everything(opened[0])
        assert [each.event.epoch for each in stored] == [1, 2, 3, 4, 5, 6]
        assert len({each.event.data.boot for each in stored}) == 6
        # Whoever saw a newer start right after its own was told to stop; the last one never is.
        assert all(isinstance(each, (Stored, StaleEpochError)) for each in results)
        (newest,) = [log for log in opened if log.epoch == 6]
        assert (await newest.append(incident("a"))).won


async def test_a_boot_that_was_replaced_does_not_come_back(nats_settings: Settings) -> None:
    async with logs(nats_settings, 3) as (one, two, restarted):
        await start(one, "boot-1")
        await start(two, "boot-2")
        with pytest.raises(StaleEpochError, match=r"epoch 2 .*boot-2"):
            await start(restarted, "boot-1")
        with pytest.raises(StaleEpochError):
            await restarted.join_epoch("boot-1", 1)
        assert await restarted.join_epoch(None, 1) == 2


async def test_a_process_waits_for_the_start_of_its_boot(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (daemon, trainer):
        waiting = asyncio.create_task(trainer.join_epoch("boot-1", 30))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await start(daemon, "boot-1")
        assert await waiting == 1
        assert (await trainer.append(incident("a"))).event.epoch == 1


async def test_a_start_that_never_comes_is_named(event_log: Log) -> None:
    with pytest.raises(LogError, match=r"boot boot-9 within 0\.05 s.*spade up"):
        await event_log.join_epoch("boot-9", 0.05)


async def test_a_start_that_says_another_epoch_is_refused(event_log: Log) -> None:
    with pytest.raises(LogError, match="epoch"):
        await event_log.take_epoch("boot-1", lambda epoch: starting("boot-1")(epoch + 1))
    assert await event_log.last_sequence() == 0
