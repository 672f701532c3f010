"""The loop as a whole, driven event by event in one process: slots stay full, and a restart doubles nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from schemas.events import (
    DocumentSampled,
    EnvironmentProposed,
    EnvironmentReplayed,
    EnvironmentRetired,
    EnvironmentValidated,
    EpisodeCompleted,
    RegretComputed,
)
from spade_daemon.log.projection import state_at
from spade_daemon.log.state import Phase, State
from spade_daemon.log.stored import Stored
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import Settings
from tests.handlers.scripted import ScriptedServer, fenced, loses_once
from tests.handlers.world import BY_TYPE, World, opened
from tests.vetting.environments import GOOD, PROBE

pytestmark = pytest.mark.asyncio(loop_scope="module")
FREE_RUN = (
    "curriculum.max_policy_lag=8",
    "trainer.groups_per_batch=100",
    "trainer.max_wait_designs=100",
    "curriculum.replay_rate=0.3",
)


async def drive(world: World, until: Callable[[State], bool]) -> None:
    """Give each event from the first on to its reaction, as durable consumers that remember nothing would."""
    tasks: set[asyncio.Task[None]] = set()
    projection = world.services.projection

    async def one_by_one(queue: asyncio.Queue[Stored[Any]]) -> None:
        while True:
            await _react(world, await queue.get())

    async def deliver() -> None:
        queues: dict[str, asyncio.Queue[Stored[Any]]] = {}
        async for stored in world.services.log.follow(1):
            reaction = BY_TYPE.get(stored.event.type)
            if reaction is None:
                continue
            if reaction.concurrent:
                tasks.add(asyncio.create_task(_react(world, stored)))
                continue
            if stored.event.type not in queues:
                queues[stored.event.type] = asyncio.Queue()
                tasks.add(asyncio.create_task(one_by_one(queues[stored.event.type])))
            queues[stored.event.type].put_nowait(stored)

    tasks.add(asyncio.create_task(deliver()))
    try:
        async with asyncio.timeout(120):
            while not until(projection.state):
                await projection.changed()
                for task in [task for task in tasks if task.done()]:
                    tasks.remove(task)
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _react(world: World, stored: Stored[Any]) -> None:
    await world.services.projection.wait_for(stored.sequence)
    await BY_TYPE[stored.event.type].handle(stored, world.services)


def designer() -> Callable[[str], str]:
    """One good game after the other, and every third reply is none."""
    replies = [
        fenced(PROBE),
        "I cannot think of one.",
        fenced(GOOD),
        fenced(PROBE.replace("max_turns = 8", "max_turns = 1")),
    ]
    turn = iter(range(10_000))
    return lambda _: replies[next(turn) % len(replies)]


def retired(count: int) -> Callable[[State], bool]:
    return lambda state: sum(state.retirements.values()) >= count


async def check_turns(world: World) -> None:
    """Each slot takes its turns one after the other, each begun once the one before has ended."""
    expected: Counter[int] = Counter()
    busy: set[int] = set()
    for stored in await world.all():
        data = stored.event.data
        if isinstance(data, DocumentSampled | EnvironmentReplayed):
            assert data.turn.slot not in busy
            assert data.turn.generation == expected[data.turn.slot]
            busy.add(data.turn.slot)
        elif isinstance(data, EnvironmentRetired):
            assert data.turn.generation == expected[data.turn.slot]
            busy.remove(data.turn.slot)
            expected[data.turn.slot] += 1


async def check_work(world: World) -> None:
    """What was begun and ended was done in full: a verdict for each design, a regret for each round."""
    proposed = {s.event.data.environment: s.event.data for s in await world.all(EnvironmentProposed)}
    judged = {s.event.data.environment: s.event.data for s in await world.all(EnvironmentValidated)}
    regrets = {(s.event.data.environment, s.event.data.round) for s in await world.all(RegretComputed)}
    played = Counter((s.event.data.environment, s.event.data.round) for s in await world.all(EpisodeCompleted))
    for stored in await world.all(EnvironmentRetired):
        data = stored.event.data
        key = (data.environment, data.round)
        if data.reason == "unparsable":
            assert proposed[data.environment].failure is not None
        elif data.reason == "rejected":
            assert not judged[data.environment].accepted
        else:
            assert key in regrets and played[key] == 2 * world.services.settings.agent.plays
    state = world.services.state
    assert state.unexpected == 0 and "event.dead" not in state.counts
    assert state.digest() == (await state_at(world.services.log, state.sequence)).digest()


@pytest.mark.parametrize("run_settings", [FREE_RUN], indirect=True)
async def test_the_loop_keeps_every_slot_at_work(world: World) -> None:
    world.policy.script.design = designer()
    world.policy.script.act = loses_once()
    await drive(world, retired(8))
    await check_turns(world)
    await check_work(world)
    state = world.services.state
    assert len(state.slots) == 2
    assert {"played", "unparsable"} <= set(state.retirements)
    assert state.outcomes and all(outcome.design or outcome.agent_signal for outcome in state.outcomes)


@pytest.mark.parametrize("run_settings", [FREE_RUN], indirect=True)
async def test_a_run_that_dies_again_and_again_goes_on(
    run_settings: Settings, sandbox: Sandbox, chat: ChatTokens, policy: ScriptedServer
) -> None:
    """Killed at any await, every event delivered again: the work is finished, and nothing is done twice."""
    policy.script.design = designer()
    policy.script.act = loses_once()
    deaths = (1, 3, 6)
    for number, count in enumerate(deaths):
        async with opened(run_settings, sandbox, chat, policy, boot=f"boot-{number}") as world:
            await drive(world, retired(count))
    async with opened(run_settings, sandbox, chat, policy, boot="boot-last") as world:
        await drive(world, retired(8))
        await check_turns(world)
        await check_work(world)
        state = world.services.state
        assert state.epoch == len(deaths) + 1
        ended = [s.event.data for s in await world.all(EpisodeCompleted)]
        keys = [(e.environment, e.round, e.arm, e.play) for e in ended]
        assert len(keys) == len(set(keys))
        assert sum(slot.phase is not Phase.FREE for slot in state.slots.values()) >= 1
