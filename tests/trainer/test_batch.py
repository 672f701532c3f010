"""The batch is a pure function of the log: nothing is split, lost, doubled or reordered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from schemas.events import CheckpointPublished, EpisodeCompleted
from schemas.records import SampleRef
from schemas.words import Arm, StopReason
from spade_daemon.log.state import EMPTY, Outcome, State
from spade_daemon.settings import Settings, load
from spade_daemon.trainer.batch import BatchPlan, batches_ready, plan_batch

BLOB = "0" * 64
GROUP_REASONS = {"no_signal", "stale", "void", "no_tokens"}


def sample(version: int = 0, tokens: int = 10) -> SampleRef:
    return SampleRef(
        blob=BLOB,
        prompt_tokens=5,
        sampled_tokens=tokens,
        version_min=version,
        version_max=version,
        temperature=1.0,
    )


def episode(environment: str, play: int, value: float, version: int, tokens: int = 10) -> EpisodeCompleted:
    return EpisodeCompleted(
        environment=environment,
        round=0,
        arm=Arm.PLAIN,
        play=play,
        seed=play,
        return_=value,
        turns=1,
        stop=StopReason.TERMINATED,
        fault=None,
        sample=sample(version, tokens) if tokens >= 0 else None,
        seconds=0.1,
        walls=(),
    )


def name(sequence: int) -> str:
    return f"e-{sequence:012x}"


def played(
    sequence: int, returns: tuple[float, ...], *, reward: float | None = None, skill: str = "logic", version: int = 0
) -> Outcome:
    """A finished round; with a reward it also settles a design."""
    environment = name(sequence)
    return Outcome(
        sequence=sequence,
        environment=environment,
        round=0,
        skill=skill,
        design=sample(version) if reward is not None else None,
        reward=reward,
        invalid=None,
        agent_signal=len(set(returns)) > 1,
        plain=tuple(episode(environment, play, value, version) for play, value in enumerate(returns)),
    )


def failed(sequence: int, *, skill: str = "logic", tokens: int = 10) -> Outcome:
    return Outcome(
        sequence=sequence,
        environment=name(sequence),
        round=0,
        skill=skill,
        design=sample(tokens=tokens),
        reward=None,
        invalid="solvable",
        agent_signal=False,
    )


def configured(**trainer: int) -> Settings:
    base = load("cpu")
    return base.model_copy(update={"trainer": base.trainer.model_copy(update=trainer)})


def designing(settings: Settings, **designer: object) -> Settings:
    return settings.model_copy(update={"designer": settings.designer.model_copy(update=designer)})


def waiting(*outcomes: Outcome, version: int = 0) -> State:
    return replace(after(EMPTY, version, 0), outcomes=outcomes) if version else replace(EMPTY, outcomes=outcomes)


def after(state: State, policy: int, through: int) -> State:
    """What the fold does when version ``policy`` is published."""
    published = CheckpointPublished(
        policy=policy,
        parent=policy - 1,
        path="/p",
        manifest=BLOB,
        consumed_sequence=through,
        groups=(),
        designs=(),
        dropped={},
        metrics={},
        seconds=1.0,
    )
    kept = tuple(outcome for outcome in state.outcomes if outcome.sequence > through)
    return replace(state, outcomes=kept, checkpoint=published)


def planned(state: State, settings: Settings) -> BatchPlan:
    plan = plan_batch(state, settings)
    assert plan is not None
    return plan


def test_closes_at_the_group_that_completes_it() -> None:
    settings = configured(groups_per_batch=2)
    outcomes = (played(1, (0.0, 1.0)), played(2, (1.0, 1.0)), played(3, (0.0, 1.0)), played(4, (0.0, 1.0)))
    assert plan_batch(waiting(*outcomes[:2]), settings) is None
    plan = planned(waiting(*outcomes), settings)
    assert plan.policy == 1
    assert plan.through_sequence == 3
    assert [group.sequence for group in plan.groups] == [1, 3]
    assert [play.advantage for play in plan.groups[0].plays] == [-0.5, 0.5]
    assert plan.dropped == {"no_signal": 1}


def test_an_old_group_is_stale() -> None:
    settings = configured(groups_per_batch=1)
    settings = settings.model_copy(update={"curriculum": settings.curriculum.model_copy(update={"max_policy_lag": 1})})
    state = waiting(played(1, (0.0, 1.0), version=1), played(2, (0.0, 1.0), version=2), version=3)
    plan = planned(state, settings)
    assert [group.sequence for group in plan.groups] == [2]
    assert plan.dropped == {"stale": 1}


def test_a_play_without_tokens_counts_in_the_mean_only() -> None:
    outcome = played(1, (0.0, 1.0))
    mute = outcome.plain[0].model_copy(update={"sample": None})
    plan = planned(waiting(replace(outcome, plain=(mute, outcome.plain[1]))), configured(groups_per_batch=1))
    assert [(play.play, play.advantage) for play in plan.groups[0].plays] == [(1, 0.5)]


def test_a_void_round_is_counted() -> None:
    void = replace(played(1, (0.0, 1.0)), plain=(), agent_signal=False)
    plan = planned(waiting(void, played(2, (0.0, 1.0))), configured(groups_per_batch=1))
    assert plan.dropped == {"void": 1}


def test_bad_designs_close_a_batch_against_a_good_one() -> None:
    settings = configured(groups_per_batch=9, max_wait_designs=3)
    outcomes = (failed(1), played(2, (1.0, 1.0), reward=0.4), failed(3))
    plan = planned(waiting(*outcomes), settings)
    assert plan.groups == ()
    assert [round(design.advantage, 6) for design in plan.designs] == [-0.3, 0.6, -0.3]
    assert plan.dropped == {"no_signal": 1}


def test_equal_designs_wait_until_there_is_something_to_learn() -> None:
    settings = configured(groups_per_batch=9, max_wait_designs=2, max_designs=6)
    alike = tuple(failed(sequence) for sequence in range(1, 6))
    assert plan_batch(waiting(*alike), settings) is None
    plan = planned(waiting(*alike, played(6, (1.0, 1.0), reward=0.5)), settings)
    assert plan.through_sequence == 6
    assert len(plan.designs) == 6


def test_skills_have_their_own_baseline() -> None:
    settings = configured(groups_per_batch=1)
    outcomes = (failed(1, skill="a"), failed(2, skill="b"), played(3, (0.0, 1.0), reward=0.5, skill="a"))
    plan = planned(waiting(*outcomes), settings)
    assert [(design.sequence, design.advantage) for design in plan.designs] == [(1, -0.5), (3, 0.5)]
    assert plan.dropped == {"design_no_signal": 1}


def test_valid_designs_go_first_and_then_the_earliest() -> None:
    settings = configured(groups_per_batch=1, max_designs=2)
    outcomes = (failed(1), failed(2), played(3, (0.0, 1.0), reward=0.5))
    plan = planned(waiting(*outcomes), settings)
    assert [design.sequence for design in plan.designs] == [1, 3]
    assert plan.dropped == {"design_over_limit": 1}


def test_invalid_designs_can_be_left_out() -> None:
    settings = designing(configured(groups_per_batch=1), train_invalid=False)
    plan = planned(waiting(failed(1), played(2, (0.0, 1.0), reward=0.5)), settings)
    assert plan.designs == ()
    assert plan.dropped == {"invalid": 1, "design_no_signal": 1}


def test_a_frozen_designer_is_not_trained() -> None:
    settings = designing(configured(groups_per_batch=1, max_wait_designs=1), train=False)
    assert plan_batch(waiting(failed(1)), settings) is None
    plan = planned(waiting(failed(1), played(2, (0.0, 1.0), reward=0.5)), settings)
    assert plan.designs == ()
    assert plan.dropped == {"design_untrained": 2}


def test_a_design_without_tokens_sets_the_baseline_only() -> None:
    settings = configured(groups_per_batch=1)
    plan = planned(waiting(failed(1, tokens=0), played(2, (0.0, 1.0), reward=0.5)), settings)
    assert [(design.sequence, design.advantage) for design in plan.designs] == [(2, 0.5)]
    assert plan.dropped == {"design_no_tokens": 1}


def test_batches_that_wait_are_counted() -> None:
    settings = configured(groups_per_batch=2)
    outcomes = tuple(played(sequence, (0.0, 1.0)) for sequence in range(1, 6))
    assert [batches_ready(waiting(*outcomes[:size]), settings) for size in range(6)] == [0, 0, 1, 1, 2, 2]


@st.composite
def one_outcome(draw: st.DrawFn) -> Outcome:
    """One outcome without its place in the log."""
    skill = draw(st.sampled_from("ab"))
    if draw(st.booleans()):
        return failed(1, skill=skill, tokens=draw(st.sampled_from((0, 9))))
    returns = tuple(draw(st.lists(st.sampled_from((0.0, 0.5, 1.0)), min_size=2, max_size=4)))
    reward = draw(st.sampled_from((None, 0.0, 0.3, 1.0)))
    outcome = played(1, returns, reward=reward, skill=skill, version=draw(st.integers(0, 3)))
    return replace(outcome, plain=(), agent_signal=False) if draw(st.integers(0, 5)) == 5 else outcome


def placed(gaps: list[tuple[int, Outcome]]) -> list[Outcome]:
    """A log with growing sequences."""
    outcomes, sequence = [], 0
    for gap, outcome in gaps:
        sequence += gap
        outcomes.append(replace(outcome, sequence=sequence, environment=name(sequence)))
    return outcomes


LOGS = st.lists(st.tuples(st.integers(1, 3), one_outcome()), max_size=20).map(placed)


@given(LOGS, st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.lists(st.integers(0, 6), max_size=20))
@hypothesis_settings(deadline=None)
def test_successive_batches_partition_the_log(
    log: list[Outcome], per_batch: int, wait: int, limit: int, bursts: list[int]
) -> None:
    """Whatever arrives between two batches, each outcome is consumed once, whole, and in order."""
    settings = configured(groups_per_batch=per_batch, max_wait_designs=wait, max_designs=limit)
    state, arrived, consumed = EMPTY, 0, [0]
    by_sequence = {outcome.sequence: outcome for outcome in log}
    while True:
        more = bursts.pop() if bursts else len(log)
        state = replace(state, outcomes=(*state.outcomes, *log[arrived : arrived + more]))
        arrived = min(len(log), arrived + more)
        plan = plan_batch(state, settings)
        if plan is None:
            if arrived == len(log):
                break
            continue
        taken = [o for o in state.outcomes if o.sequence <= plan.through_sequence]
        assert plan.policy == state.version + 1
        assert plan.through_sequence > consumed[-1]
        assert plan.groups or plan.designs
        rounds = [o for o in taken if o.invalid is None]
        attempts = [o for o in taken if o.design is not None]
        by_reason = {reason: n for reason, n in plan.dropped.items() if reason in GROUP_REASONS}
        assert len(plan.groups) + sum(by_reason.values()) == len(rounds)
        assert len(plan.designs) + sum(plan.dropped.values()) - sum(by_reason.values()) == len(attempts)
        for group in plan.groups:
            assert len(group.plays) == len(by_sequence[group.sequence].plain)
            assert sum(play.advantage for play in group.plays) == pytest.approx(0)
        assert {g.sequence for g in plan.groups} | {d.sequence for d in plan.designs} <= {o.sequence for o in taken}
        assert len(plan.designs) <= limit
        consumed.append(plan.through_sequence)
        state = after(state, plan.policy, plan.through_sequence)
    assert [o.sequence for o in state.outcomes] == [o.sequence for o in log if o.sequence > consumed[-1]]


@given(LOGS, st.integers(1, 3), st.integers(1, 4))
@hypothesis_settings(deadline=None)
def test_what_arrives_later_does_not_change_a_batch(log: list[Outcome], per_batch: int, wait: int) -> None:
    settings = configured(groups_per_batch=per_batch, max_wait_designs=wait)
    plans = [plan_batch(waiting(*log[:size]), settings) for size in range(len(log) + 1)]
    closed = [plan for plan in plans if plan is not None]
    assert all(plan == closed[0] for plan in closed)
    assert all(plan is None for plan in plans[: len(plans) - len(closed)])
    assert plan_batch(waiting(*reversed(log)), settings) == plans[-1]
