"""From a verdict to a retired environment: environment.validated, environment.replayed, episode.completed,
regret.computed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from handlers import rounds
from schemas.events import (
    CheckpointPublished,
    DocumentSampled,
    EnvironmentReplayed,
    EnvironmentRetired,
    EnvironmentSeeded,
    EpisodeCompleted,
    RegretComputed,
)
from schemas.records import EpisodeRecord, PlayPlan, SlotTurn
from schemas.words import Arm, Fault, RetireReason, Setting, StopReason, VoidReason
from spade_daemon.log.state import Phase
from spade_daemon.log.stored import Stored
from tests.handlers.scripted import HINT, ScriptedServer, bisect
from tests.handlers.world import SKILL, World

pytestmark = pytest.mark.asyncio(loop_scope="module")
SEED = "e-00000000feed"
CRASHING = r'''
class CrashEnv:
    """Breaks at the first touch."""

    max_turns = 3

    def reset(self, seed=None):
        return "Touch it. Actions: \\boxed{touch}", {}

    def step(self, action):
        return 1 / 0
'''


async def seeded(world: World, code: str) -> None:
    """Remember a hand-written environment."""
    await world.append(
        EnvironmentSeeded(
            environment=SEED,
            name="seed",
            setting=Setting.GAMES,
            skill=SKILL,
            description="a seed",
            code=await world.services.log.blobs.put(code.encode()),
            hint="Be careful.",
        )
    )


def replay(slot: int = 0, generation: int = 0, round_: int = 0) -> EnvironmentReplayed:
    """A slot that takes the seed."""
    turn = SlotTurn(slot=slot, generation=generation)
    return EnvironmentReplayed(turn=turn, environment=SEED, plan=PlayPlan(round=round_, seeds=(11, 12)), reason="test")


def consumed(sequence: int) -> CheckpointPublished:
    """A checkpoint that took every outcome up to ``sequence``."""
    return CheckpointPublished(
        policy=1,
        parent=0,
        path="/nowhere",
        manifest="0" * 64,
        consumed_sequence=sequence,
        groups=(),
        designs=(),
        dropped={},
        metrics={},
        seconds=1.0,
    )


async def finished(world: World, round_: Stored[Any]) -> Stored[RegretComputed]:
    """React to a round and to its episodes: the regret of it."""
    await world.react(round_)
    for episode in await world.all(EpisodeCompleted):
        await world.react(episode)
    return await world.last(RegretComputed)


async def test_an_accepted_design_is_played_in_both_arms(world: World) -> None:
    validated = await world.validated()
    await world.react(validated)
    episodes = [stored.event.data for stored in await world.all(EpisodeCompleted)]
    plan = validated.event.data.plan
    assert plan is not None
    assert {(each.arm, each.play, each.seed) for each in episodes} == set(plan.episodes())
    assert {each.return_ for each in episodes if each.arm is Arm.PLAIN} == {0.0}
    assert {each.return_ for each in episodes if each.arm is Arm.HINTED} == {1.0}
    assert all(each.walls == world.services.sandbox.walls and each.attempts == 1 for each in episodes)
    for each in episodes:
        assert each.sample is not None
        record = await world.services.log.blobs.get_record(EpisodeRecord, each.sample.blob)
        assert record.hint == (HINT if each.arm is Arm.HINTED else None)
        assert sum(sum(sample.trained) for sample in record.samples) == each.sample.sampled_tokens
    remembered = await world.services.memory.get(validated.event.data.environment)
    assert remembered is not None and remembered.hint == HINT
    asked = len(world.policy.asked)
    await world.adds_nothing(validated)
    assert len(world.policy.asked) == asked


async def test_both_arms_of_a_seed_begin_alike_but_for_the_hint(world: World) -> None:
    await world.react(await world.validated())
    openings = [prompt for kind, prompt in world.policy.asked if kind == "act" and prompt.count("<|im_start|>") == 2]
    plain = [prompt for prompt in openings if "HINT" not in prompt]
    assert len(plain) == 2 and len(openings) == 4
    hinted = [prompt.replace(f"\n\nHINT: {HINT}", "") for prompt in openings if "HINT" in prompt]
    assert sorted(hinted) == sorted(plain)


async def test_the_regret_of_a_round_where_only_the_hint_wins(world: World) -> None:
    validated = await world.validated()
    computed = await finished(world, validated)
    data = computed.event.data
    assert (data.void, data.pairs, data.plain_mean, data.hinted_mean, data.win_rate) == (None, 2, 0.0, 1.0, 0.0)
    assert (data.regret, data.regret_se, data.agent_signal) == (1.0, 0.0, False)
    assert data.components["blend"] == pytest.approx(0.4) and data.components["regret"] == 1.0
    assert data.designer_reward == pytest.approx(0.4)
    assert len(await world.all(RegretComputed)) == 1
    for episode in await world.all(EpisodeCompleted):
        await world.adds_nothing(episode)
    retired = await world.follows(computed, EnvironmentRetired)
    assert retired.event.data.reason is RetireReason.PLAYED
    remembered = await world.services.memory.get(data.environment)
    assert remembered is not None
    assert (remembered.regret, remembered.win_rate, remembered.plays) == (1.0, 0.0, 2)
    assert world.services.state.slots[0].phase is Phase.FREE
    (outcome,) = world.services.state.outcomes
    assert outcome.design is not None and outcome.reward == data.designer_reward


async def test_what_a_crash_leaves_is_finished_by_the_next_run(world: World) -> None:
    """And half a round has no regret."""
    validated = await world.validated()
    blocked = asyncio.Event()
    seen: list[str] = []

    async def act(prompt: str) -> str:
        if "HINT:" in prompt:
            await blocked.wait()
        seen.append(prompt)
        return "\\boxed{seal 99}"

    world.policy.script.act = act
    dying = asyncio.create_task(world.react(validated))
    await world.until(EpisodeCompleted, 2)
    dying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dying
    half = await world.all(EpisodeCompleted)
    for episode in half:
        await world.adds_nothing(episode)
    before = {stored.event.id for stored in half}
    blocked.set()
    seen.clear()
    await world.react(validated)
    assert len(seen) == 2 and all("HINT:" in prompt for prompt in seen)
    episodes = await world.all(EpisodeCompleted)
    assert len(episodes) == 4 and before < {stored.event.id for stored in episodes}


async def test_a_consumed_round_is_not_played_again(world: World) -> None:
    validated = await world.validated()
    computed = await finished(world, validated)
    await world.append(consumed(computed.sequence))
    assert not world.services.state.environments[computed.event.data.environment].rounds[0].episodes
    asked = len(world.policy.asked)
    await world.adds_nothing(validated)
    for episode in await world.all(EpisodeCompleted):
        await world.adds_nothing(episode)
    assert len(world.policy.asked) == asked


async def test_a_fault_of_the_environment_voids_its_round_at_once(world: World) -> None:
    await seeded(world, CRASHING)
    held = asyncio.Event()

    async def act(prompt: str) -> str:
        if "HINT:" in prompt:
            await held.wait()
        return "\\boxed{touch}"

    world.policy.script.act = act
    replayed = await world.append(replay())
    playing = asyncio.create_task(world.react(replayed))
    await world.until(EpisodeCompleted, 1)
    broken = await world.all(EpisodeCompleted)
    assert (broken[0].event.data.fault, broken[0].event.data.return_) == (Fault.ENVIRONMENT, None)
    assert "ZeroDivisionError" in broken[0].event.data.detail
    await world.react(broken[0])
    computed = await world.last(RegretComputed)
    data = computed.event.data
    assert (data.void, data.regret, data.pairs, data.agent_signal) == (VoidReason.ENVIRONMENT_FAULT, None, 0, False)
    assert data.designer_reward is None
    await world.react(computed)
    assert (await world.last(EnvironmentRetired)).event.data.reason is RetireReason.VOID
    assert world.services.state.environments[SEED].void_rounds == 1
    held.set()
    await playing
    await world.adds_nothing(replayed)


@pytest.mark.parametrize("run_settings", [("agent.attempts=3",)], indirect=True)
async def test_a_fault_of_the_infrastructure_is_retried_and_then_voids(
    world: World, policy: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def no_pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(rounds, "asyncio", SimpleNamespace(TaskGroup=asyncio.TaskGroup, sleep=no_pause))
    validated = await world.validated()
    route = "/inference/v1/generate"
    policy.faults = [(route, 503, "overloaded")] * 1000
    computed = await finished(world, validated)
    episodes = [stored.event.data for stored in await world.all(EpisodeCompleted)]
    assert {(each.stop, each.fault, each.attempts, each.return_) for each in episodes} == {
        (StopReason.POLICY_UNAVAILABLE, Fault.INFRASTRUCTURE, 3, None)
    }
    assert sorted(pauses) == [2.0] * 4 + [4.0] * 4
    data = computed.event.data
    assert (data.void, data.designer_reward) == (VoidReason.INFRASTRUCTURE_FAULT, None)
    assert world.services.state.outcomes == ()
    policy.faults = []


async def test_an_episode_that_comes_right_in_the_end_counts(
    world: World, policy: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def recovers(_: float) -> None:
        policy.faults = []

    monkeypatch.setattr(rounds, "asyncio", SimpleNamespace(TaskGroup=asyncio.TaskGroup, sleep=recovers))
    validated = await world.validated()
    policy.faults = [("/inference/v1/generate", 503, "overloaded")] * 1000
    await world.react(validated)
    episodes = [stored.event.data for stored in await world.all(EpisodeCompleted)]
    assert {(each.fault, each.return_ is None) for each in episodes} == {(None, False)}
    assert max(each.attempts for each in episodes) == 2


async def test_a_replay_earns_its_designer_nothing(world: World) -> None:
    await world.react(await world.validated())
    environment = (await world.all(EpisodeCompleted))[0].event.data.environment
    world.policy.script.act = bisect
    turn = SlotTurn(slot=1, generation=0)
    plan = PlayPlan(round=1, seeds=(5, 6))
    replayed = await world.append(EnvironmentReplayed(turn=turn, environment=environment, plan=plan, reason="regret"))
    computed = await finished(world, replayed)
    assert {stored.event.data.round for stored in await world.all(RegretComputed)} == {0, 1}
    last = next(s.event.data for s in await world.all(RegretComputed) if s.event.data.round == 1)
    assert (last.designer_reward, last.regret, last.win_rate) == (None, 0.0, 1.0)
    assert computed.event.data.turn in (turn, SlotTurn(slot=0, generation=0))


async def test_two_slots_that_replay_one_round_share_nothing(world: World) -> None:
    await seeded(world, CRASHING.replace("1 / 0", '"Done.", 1.0, True, False, {}'))
    world.policy.script.act = lambda _: "\\boxed{touch}"
    first, second = await world.append(replay(0)), await world.append(replay(1))
    next_turn = await world.follows(second, DocumentSampled | EnvironmentReplayed)
    assert next_turn.event.data.turn == SlotTurn(slot=1, generation=1)
    assert not await world.all(EpisodeCompleted)
    await world.react(first)
    assert len(await world.all(EpisodeCompleted)) == 4
    assert world.services.state.environments[SEED].rounds[0].turn.slot == 0
