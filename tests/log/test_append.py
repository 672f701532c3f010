from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from schemas.events import IncidentRaised
from spade_daemon.errors import StaleEpochError
from spade_daemon.log import subjects
from spade_daemon.log.connection import Connection
from spade_daemon.log.log import Log
from spade_daemon.log.stored import Stored, make_event
from spade_daemon.log.writer import Writer
from spade_daemon.settings import Settings
from tests.log.facts import document, everything, incident, logs, replay, start, starting


async def test_the_first_writer_wins_and_all_others_get_its_event(nats_settings: Settings) -> None:
    async with logs(nats_settings, 4) as writers:
        await start(writers[0])
        for log in writers[1:]:
            await log.join_epoch(None, 5)
        for key in ("a", "b", "c"):
            answers = await asyncio.gather(
                *(
                    log.append(incident(key, f"{number}.{task}"))
                    for number, log in enumerate(writers)
                    for task in range(8)
                )
            )
            assert sum(answer.won for answer in answers) == 1
            assert len({(answer.sequence, answer.event.id) for answer in answers}) == 1
            winner = next(answer for answer in answers if answer.won)
            assert await writers[3].last(IncidentRaised, key) == winner
        assert [stored.sequence for stored in await everything(writers[0])] == [1, 2, 3, 4]


async def test_an_event_that_an_earlier_try_stored_is_our_own(nats_settings: Settings) -> None:
    """The acknowledgement was lost: the server answers the retry with "wrong last sequence", yet it is ours."""
    connection = await Connection.open(nats_settings, name="test")
    async with logs(nats_settings, 1) as (log,):
        await start(log)
        event = make_event(incident("a"), run="main", epoch=1, time=datetime.now(UTC), cause=None)
        writer = Writer(connection, "main")
        first = await writer.publish(event, after=0, scope=None)
        assert first is not None
        assert await writer.publish(event, after=0, scope=None) is None
        assert await log._settle(event, None) == Stored(first.sequence, event, won=True)
        assert (await log.append(incident("a"))).won is False
        assert await log.last_sequence() == 2
    await connection.close()


async def test_a_lost_answer_is_asked_for_again(event_log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    await start(event_log)
    request = event_log._connection.request
    answers = 0
    lost = {1, 4}
    """The first append, and the commit of the batch: after the lost answer, the retry and the batch's first message."""

    async def forgetful(*arguments: object) -> dict[str, object]:
        nonlocal answers
        answer = await request(*arguments)  # type: ignore[arg-type]
        answers += 1
        if answers in lost:
            lost.remove(answers)
            raise TimeoutError
        return answer

    monkeypatch.setattr(event_log._connection, "request", forgetful)
    assert (await event_log.append(incident("a"))).won
    assert (await event_log.append(incident("b"))).won
    assert [each.won for each in await event_log.append_all([incident("c"), incident("d")])] == [True, True]
    assert not lost
    assert await event_log.last_sequence() == 5


async def test_of_a_document_and_a_replay_only_one_exists_for_a_turn(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (one, two):
        await start(one)
        await two.join_epoch(None, 5)
        for generation in range(5):
            answers = await asyncio.gather(
                one.append(document(0, generation), exclusive=f"*.*.s0.{generation}"),
                two.append(replay(0, generation), exclusive=f"*.*.s0.{generation}"),
            )
            assert sum(answer.won for answer in answers) == 1
            assert answers[0].event == answers[1].event
        neighbour = await one.append(replay(1, 0), exclusive="*.*.s1.0")
        assert neighbour.won
        assert await one.last_sequence() == 7


async def test_a_batch_is_stored_as_one(event_log: Log) -> None:
    started = await start(event_log)
    stored = await event_log.append_all([incident(f"i{number}") for number in range(300)], cause=started)
    assert [each.sequence for each in stored] == list(range(2, 302))
    assert (await everything(event_log))[1:] == stored
    assert all(each.event.causation == started.event.id for each in stored)


async def test_a_batch_whose_facts_exist_in_part_adds_what_is_missing(event_log: Log) -> None:
    await start(event_log)
    before = await event_log.append(incident("b", "first"))
    stored = await event_log.append_all([incident(name, "second") for name in "abc"])
    assert [each.won for each in stored] == [True, False, True]
    assert stored[1].event == before.event
    assert await event_log.last_sequence() == 4
    again = await event_log.append_all([incident(name, "third") for name in "abc"])
    assert [each.won for each in again] == [False, False, False]
    assert [each.sequence for each in again] == [each.sequence for each in stored]
    assert await event_log.append_all([]) == []


async def test_two_concurrent_batches_of_the_same_facts_agree(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (one, two):
        await start(one)
        await two.join_epoch(None, 5)
        names = [f"i{number}" for number in range(20)]
        first, second = await asyncio.gather(
            one.append_all([incident(name, "one") for name in names]),
            two.append_all([incident(name, "two") for name in names]),
        )
        assert [each.event for each in first] == [each.event for each in second]
        assert await one.last_sequence() == 21


async def test_a_batch_that_cannot_be_is_refused_before_it_is_sent(event_log: Log) -> None:
    with pytest.raises(ValueError, match="twice"):
        await event_log.append_all([incident("a"), incident("a")])
    with pytest.raises(ValueError, match="at most 1000"):
        await event_log.append_all([incident(f"i{number}") for number in range(1001)])
    assert await event_log.last_sequence() == 0


async def test_a_key_that_is_no_token_is_refused_before_it_is_sent(event_log: Log) -> None:
    with pytest.raises(ValueError, match="key"):
        await event_log.append(incident("a b"))
    assert await event_log.last_sequence() == 0


async def test_a_process_of_an_older_epoch_is_told_to_stop(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (old, new):
        await start(old, "boot-1")
        before = await old.append(incident("before"))
        await start(new, "boot-2")
        with pytest.raises(StaleEpochError, match=r"epoch 2 .* this process has epoch 1"):
            await old.append(incident("after"))
        with pytest.raises(StaleEpochError):
            await old.append(incident("before"))
        with pytest.raises(StaleEpochError):
            await old.append_all([incident("x"), incident("y")])
        assert (await new.append(incident("before"))).event == before.event


async def test_what_an_older_epoch_wrote_too_late_is_overwritten(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (old, new):
        await start(old, "boot-1")
        await start(new, "boot-2")
        with pytest.raises(StaleEpochError):  # it does not know yet: the event is stored, and does not count
            await old.append(incident("a", "stale"))
        assert await new.last_sequence() == 3
        fact = await new.append(incident("a", "fact"))
        assert (fact.sequence, fact.won) == (4, True)
        assert (await new.append(incident("a", "again"))).event == fact.event
        subject = subjects.subject("main", incident("a"))
        kept = [each for each in await everything(new) if each.event.key == "a"]
        assert [each.event.epoch for each in kept] == [1, 2], subject


async def test_a_stale_event_under_an_exclusive_filter_is_overwritten_too(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (old, new):
        await start(old, "boot-1")
        await start(new, "boot-2")
        with pytest.raises(StaleEpochError):
            await old.append(document(0, 3), exclusive="*.*.s0.3")
        fact = await new.append(replay(0, 3), exclusive="*.*.s0.3")
        assert fact.won
        loser = await new.append(document(0, 3), exclusive="*.*.s0.3")
        assert (loser.won, loser.event) == (False, fact.event)


async def test_a_batch_after_stale_events_is_stored_all_the_same(nats_settings: Settings) -> None:
    async with logs(nats_settings, 2) as (old, new):
        await start(old, "boot-1")
        await start(new, "boot-2")
        with pytest.raises(StaleEpochError):
            await old.append_all([incident("a"), incident("b")])
        stored = await new.append_all([incident("a"), incident("b"), incident("c")])
        assert all(each.won and each.event.epoch == 2 for each in stored)


async def test_before_the_first_start_events_carry_epoch_zero(event_log: Log) -> None:
    stored = await event_log.append(incident("early"))
    assert stored.event.epoch == 0
    await start(event_log)
    assert (await event_log.append(incident("early"))).event == stored.event


async def test_runs_do_not_see_each_other(nats_settings: Settings) -> None:
    other = nats_settings.model_copy(update={"run": "other"})
    async with logs(nats_settings, 1) as (one,), logs(other, 1) as (two,):
        await one.take_epoch("boot", starting("boot"))
        await one.append(incident("a"))
        assert await two.last_sequence() == 0
        assert (await two.append(incident("a"))).won
