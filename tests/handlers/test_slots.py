"""Which slot works on what: run.started, environment.retired, weights.swapped, event.dead."""

from __future__ import annotations

import pytest

from handlers.slots import _candidates, gate_is_open, open_free_slots
from schemas.events import (
    DocumentSampled,
    EnvironmentReplayed,
    EnvironmentRetired,
    EnvironmentSeeded,
    EventDead,
    RegretComputed,
    WeightsSwapped,
)
from schemas.records import SlotTurn
from schemas.words import RetireReason, Setting, VoidReason
from spade_daemon.envs.seeds import load_seeds
from spade_daemon.log.state import Phase
from tests.handlers.scripted import loses_once
from tests.handlers.test_playing import consumed, finished
from tests.handlers.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
NO_REPLAYS = ("curriculum.replay_rate=0.0", "curriculum.replay_when_dry=0.0")
TIGHT = (*NO_REPLAYS, "curriculum.max_policy_lag=0", "curriculum.slots=1", "vet.max_copy_similarity=1.0")


async def turns(world: World) -> list[tuple[int, int]]:
    """(slot, generation) of every turn that began, in order."""
    begun = [*await world.all(DocumentSampled), *await world.all(EnvironmentReplayed)]
    return [
        (stored.event.data.turn.slot, stored.event.data.turn.generation)
        for stored in sorted(begun, key=lambda stored: stored.sequence)
    ]


def swapped(name: str = "a") -> WeightsSwapped:
    return WeightsSwapped(policy=1, server="s", swap=name, seconds=1.0, paused_seconds=0.1, canary_max_diff=None)


async def test_a_start_seeds_the_memory_and_fills_every_slot(world: World) -> None:
    await world.react(world.started)
    seeds = load_seeds()
    assert [stored.event.data.environment for stored in await world.all(EnvironmentSeeded)] == [
        seed.environment for seed in seeds
    ]
    assert {entry.id for entry in await world.services.memory.all()} == {seed.environment for seed in seeds}
    assert await turns(world) == [(0, 0), (1, 0)]
    await world.adds_nothing(world.started)


@pytest.mark.parametrize("run_settings", [NO_REPLAYS], indirect=True)
async def test_each_slot_draws_a_document_of_its_own(world: World) -> None:
    await world.react(world.started)
    first, second = (stored.event.data for stored in await world.all(DocumentSampled))
    assert first.document != second.document
    assert (first.words, first.setting) == (20, Setting.GAMES)
    text = (await world.services.log.blobs.get(first.text)).decode()
    assert text and world.services.corpus.get(first.document).text.startswith(text.split()[0])


@pytest.mark.parametrize("run_settings", [("corpus.enabled=false", *NO_REPLAYS)], indirect=True)
async def test_a_run_without_a_corpus_samples_nothing(world: World) -> None:
    await world.react(world.started)
    data = (await world.last(DocumentSampled)).event.data
    assert (data.document, data.title, data.words) == ("none", "", 0)


@pytest.mark.parametrize("run_settings", [("curriculum.replay_rate=1.0", "designer.skills=['X']")], indirect=True)
async def test_two_free_slots_replay_different_seeds_of_the_setting(world: World) -> None:
    await world.react(world.started)
    first, second = (stored.event.data for stored in await world.all(EnvironmentReplayed))
    assert first.environment != second.environment
    environments = world.services.state.environments
    assert {environments[each.environment].setting for each in (first, second)} == {Setting.GAMES}


async def test_the_start_of_an_older_epoch_does_nothing(world: World) -> None:
    older = world.started
    await world.services.log.take_epoch(
        "boot-2", lambda epoch: older.event.data.model_copy(update={"epoch": epoch, "boot": "boot-2"})
    )
    end = await world.services.log.last_sequence()
    await world.services.projection.wait_for(end)
    await world.adds_nothing(older)


async def test_a_retired_slot_takes_its_next_turn(world: World) -> None:
    proposed = await world.proposed()
    retired = await world.append(
        EnvironmentRetired(
            environment=proposed.event.data.environment,
            round=0,
            turn=proposed.event.data.turn,
            reason=RetireReason.REJECTED,
        )
    )
    await world.react(retired)
    assert await turns(world) == [(0, 0), (0, 1)]
    await world.adds_nothing(retired)


@pytest.mark.parametrize("run_settings", [("curriculum.slots=1",)], indirect=True)
async def test_a_slot_that_the_settings_took_away_ends(world: World) -> None:
    proposed = await world.proposed(slot=1)
    retired = await world.append(
        EnvironmentRetired(
            environment=proposed.event.data.environment,
            round=0,
            turn=proposed.event.data.turn,
            reason=RetireReason.REJECTED,
        )
    )
    await world.adds_nothing(retired)


@pytest.mark.parametrize("run_settings", [TIGHT], indirect=True)
async def test_a_slot_waits_while_the_trainer_is_behind(world: World) -> None:
    """A batch waits and no lag is allowed: the slot stays free until the weights are swapped."""
    world.policy.script.act = loses_once()
    computed = await finished(world, await world.validated())
    assert computed.event.data.agent_signal
    assert not gate_is_open(world.services.state, world.services.settings)
    await world.react(computed)
    retired = await world.last(EnvironmentRetired)
    await world.adds_nothing(retired)
    assert world.services.state.slots[0].phase is Phase.FREE
    checkpoint = await world.append(consumed(computed.sequence))
    assert gate_is_open(world.services.state, world.services.settings)
    arrived = await world.append(swapped(), cause=checkpoint)
    await world.follows(arrived, DocumentSampled)
    assert await turns(world) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("run_settings", [(*TIGHT, "trainer.max_checkpoints=1")], indirect=True)
async def test_a_run_that_trains_no_more_plays_on(world: World) -> None:
    await world.append(consumed(0))
    assert gate_is_open(world.services.state, world.services.settings)


async def test_a_dead_event_frees_its_slot(world: World) -> None:
    sampled = await world.sampled()
    dead = await world.append(
        EventDead(
            handler="daemon-document-sampled",
            sequence=sampled.sequence,
            subject="s",
            attempts=5,
            error="boom",
            turn=sampled.event.data.turn,
        )
    )
    assert world.services.state.slots[0].phase is Phase.FREE
    await world.react(dead)
    assert SlotTurn(slot=0, generation=1) == world.services.state.slots[0].turn
    assert world.services.state.slots[1].phase is not Phase.FREE
    await world.adds_nothing(dead)


async def test_of_two_that_open_one_turn_one_wins(world: World) -> None:
    await open_free_slots(world.services, world.started)
    chosen = await turns(world)
    await world.services.projection.wait_for(await world.services.log.last_sequence())
    late = await world.services.log.append(
        (await world.sampled(slot=0, generation=5)).event.data.model_copy(
            update={"turn": SlotTurn(slot=0, generation=0)}
        ),
        exclusive="*.*.s0.0",
    )
    assert not late.won
    assert (await turns(world))[:2] == chosen == [(0, 0), (1, 0)]


@pytest.mark.parametrize("run_settings", [("curriculum.replay_rate=1.0",)], indirect=True)
async def test_neither_a_busy_nor_a_broken_environment_is_replayed(world: World) -> None:
    """Of the candidates one is in a slot and one has failed in play."""
    await world.react(world.started)
    busy = (await world.last(EnvironmentReplayed)).event.data
    other = (await world.all(EnvironmentReplayed))[0].event.data
    assert busy.environment not in candidates(world) and other.environment not in candidates(world)
    void = RegretComputed(
        environment=other.environment,
        round=other.plan.round,
        turn=other.turn,
        void=VoidReason.ENVIRONMENT_FAULT,
        regret=None,
        regret_se=None,
        pairs=0,
        plain_mean=None,
        hinted_mean=None,
        win_rate=None,
        components={},
        designer_reward=None,
        agent_signal=False,
    )
    await world.append(void)
    for data, reason in ((other, RetireReason.VOID), (busy, RetireReason.PLAYED)):
        await world.append(
            EnvironmentRetired(environment=data.environment, round=data.plan.round, turn=data.turn, reason=reason)
        )
    assert busy.environment in candidates(world) and other.environment not in candidates(world)


async def test_a_slot_that_moved_on_is_left_alone(world: World) -> None:
    """A retirement that is delivered again while the slot's next turn has ended, too."""
    first = await world.proposed()
    retired = await world.append(
        EnvironmentRetired(
            environment=first.event.data.environment,
            round=0,
            turn=SlotTurn(slot=0, generation=0),
            reason=RetireReason.REJECTED,
        )
    )
    second = await world.proposed(generation=1)
    await world.append(
        EnvironmentRetired(
            environment=second.event.data.environment,
            round=0,
            turn=SlotTurn(slot=0, generation=1),
            reason=RetireReason.REJECTED,
        )
    )
    assert world.services.state.slots[0].phase is Phase.FREE
    await world.adds_nothing(retired)


def candidates(world: World) -> set[str]:
    """What may be replayed now."""
    return {each.environment for each in _candidates(world.services.state, Setting.GAMES)}
