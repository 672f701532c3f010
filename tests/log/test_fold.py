"""The fold: total, deterministic, fenced; and what each event does to the state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Payload
from schemas.event import Event, decode
from schemas.events import (
    CheckpointPublished,
    DocumentSampled,
    EnvironmentProposed,
    EnvironmentReplayed,
    EnvironmentRetired,
    EnvironmentSeeded,
    EnvironmentValidated,
    EpisodeCompleted,
    RegretComputed,
    RunStarted,
)
from schemas.records import PlayPlan, SampleRef, SlotTurn
from schemas.words import Arm, DesignFailure, Fault, RetireReason, Setting, StopReason
from spade_daemon.log.fold import evolve, fold
from spade_daemon.log.state import EMPTY, Phase, State
from spade_daemon.log.stored import make_event
from tests.strategies import events

SEED, DESIGN = "e-00000000000a", "e-00000000000b"
BLOB = "0" * 64
TURN = SlotTurn(slot=0, generation=0)
SAMPLE = SampleRef(blob=BLOB, prompt_tokens=9, sampled_tokens=5, version_min=0, version_max=0, temperature=1.0)
PLAN = PlayPlan(round=0, seeds=(1, 2))


def started(epoch: int = 1, slots: int = 2) -> RunStarted:
    return RunStarted(epoch=epoch, boot=f"b{epoch}", slots=slots, model="m", settings={})


def sampled(turn: SlotTurn = TURN) -> DocumentSampled:
    return DocumentSampled(
        turn=turn, document="d", title="t", text=BLOB, words=3, setting=Setting.GAMES, skill="Optimization"
    )


def proposed(failure: DesignFailure | None = None) -> EnvironmentProposed:
    return EnvironmentProposed(
        environment=DESIGN,
        turn=TURN,
        document="d",
        setting=Setting.GAMES,
        skill="Optimization",
        failure=failure,
        code=None if failure else BLOB,
        sample=SAMPLE,
    )


def validated(accepted: bool = True) -> EnvironmentValidated:
    return EnvironmentValidated(
        environment=DESIGN,
        turn=TURN,
        accepted=accepted,
        reason=None if accepted else "solvable",
        checks=(),
        description="a game",
        hint="look first" if accepted else None,
        embedding=None,
        nearest=None,
        similarity=None,
        plan=PLAN if accepted else None,
        walls=("seccomp",),
    )


def episode(arm: Arm, play: int, return_: float | None, *, fault: Fault | None = None) -> EpisodeCompleted:
    return EpisodeCompleted(
        environment=DESIGN,
        round=0,
        arm=arm,
        play=play,
        seed=PLAN.seeds[play],
        return_=return_,
        turns=1,
        stop=StopReason.TERMINATED,
        fault=fault,
        sample=SAMPLE,
        seconds=1.0,
        walls=(),
    )


def regret(signal: bool = True) -> RegretComputed:
    return RegretComputed(
        environment=DESIGN,
        round=0,
        turn=TURN,
        void=None,
        regret=0.5,
        regret_se=0.1,
        pairs=2,
        plain_mean=0.5,
        hinted_mean=1.0,
        win_rate=0.5,
        components={},
        designer_reward=1.0,
        agent_signal=signal,
    )


def checkpoint(through: int) -> CheckpointPublished:
    return CheckpointPublished(
        policy=1,
        parent=0,
        path="/v1",
        manifest=BLOB,
        consumed_sequence=through,
        groups=((DESIGN, 0),),
        designs=(DESIGN,),
        dropped={},
        metrics={},
        seconds=1.0,
    )


def fold_all(*payloads: Payload, epoch: int = 1) -> State:
    return fold(enumerate((event_of(payload, epoch) for payload in payloads), 1))


def event_of(payload: Payload, epoch: int = 1) -> Event[Payload]:
    from datetime import UTC, datetime

    return make_event(payload, run="r", epoch=epoch, time=datetime(2026, 1, 1, tzinfo=UTC), cause=None)


PLAYED = (
    episode(Arm.PLAIN, 0, 1.0),
    episode(Arm.PLAIN, 1, 0.0),
    episode(Arm.HINTED, 0, 1.0),
    episode(Arm.HINTED, 1, 1.0),
)


@given(st.lists(events(), max_size=20))
@settings(max_examples=150, deadline=None)
def test_any_events_in_any_order_fold_to_one_digest(stream: list[Event[Payload]]) -> None:
    numbered = list(enumerate(stream, 1))
    once = fold(numbered)
    half = len(numbered) // 2
    assert once.digest() == fold(numbered[half:], fold(numbered[:half])).digest()
    assert once.digest() == fold((n, decode(e.encode())) for n, e in numbered).digest()
    assert once.sequence == len(stream)


@given(events(), st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_an_older_epoch_changes_nothing_but_a_count(event: Event[Payload], epoch: int) -> None:
    state = fold_all(started(9), epoch=9)
    stale = event.model_copy(update={"epoch": min(event.epoch, epoch)})
    after = evolve(state, 2, stale)
    assert (after.stale, after.counts, after.slots) == (1, state.counts, state.slots)


def test_a_design_goes_through_its_slot() -> None:
    events_ = [started(), sampled(), proposed(), validated(), *PLAYED, regret()]
    phases = [fold_all(*events_[: n + 1]).slots.get(0) for n in range(len(events_))]
    assert phases[0] is None
    assert [slot.phase for slot in phases[1:] if slot] == [Phase.DESIGNING, Phase.VETTING] + [Phase.PLAYING] * 6
    retired = EnvironmentRetired(environment=DESIGN, round=0, turn=TURN, reason=RetireReason.PLAYED)
    final = fold_all(*events_, retired)
    assert final.slots[0].phase is Phase.FREE
    assert final.environments[DESIGN].win_rate == 0.5
    assert final.skills["Optimization"].accepted == 1


def test_outcomes_wait_for_the_trainer_and_go_when_consumed() -> None:
    waiting = fold_all(started(), sampled(), proposed(), validated(), *PLAYED, regret())
    (outcome,) = waiting.outcomes
    assert outcome.design == SAMPLE and outcome.reward == 1.0 and outcome.agent_signal
    assert [e.play for e in outcome.plain] == [0, 1]
    early = evolve(waiting, 10, event_of(checkpoint(8)))
    assert len(early.outcomes) == 1
    late = evolve(waiting, 10, event_of(checkpoint(9)))
    assert late.outcomes == () and late.version == 1
    assert not late.environments[DESIGN].rounds[0].episodes
    assert late.environments[DESIGN].win_rate == 0.5


def test_failed_designs_are_outcomes_with_their_reason() -> None:
    unparsable = fold_all(started(), sampled(), proposed(DesignFailure.NO_CODE))
    rejected = fold_all(started(), sampled(), proposed(), validated(accepted=False))
    assert [o.invalid for o in unparsable.outcomes] == ["no_code"]
    assert [o.invalid for o in rejected.outcomes] == ["solvable"]
    assert dict(rejected.rejections) == {"solvable": 1}
    assert rejected.recent_designs == (False,)


def test_a_void_episode_counts_for_nobody() -> None:
    state = fold_all(
        started(), sampled(), proposed(), validated(), episode(Arm.PLAIN, 0, None, fault=Fault.ENVIRONMENT)
    )
    assert state.environments[DESIGN].plays == 0
    assert dict(state.faults) == {"environment": 1}


def test_two_slots_that_replay_one_round_do_not_mix() -> None:
    seeded = EnvironmentSeeded(
        environment=SEED, name="n", setting=Setting.GAMES, skill="s", description="d", code=BLOB, hint="h"
    )

    def replay(slot: int) -> EnvironmentReplayed:
        turn = SlotTurn(slot=slot, generation=0)
        return EnvironmentReplayed(turn=turn, environment=SEED, plan=PLAN, reason="regret")

    state = fold_all(started(), seeded, replay(0), replay(1))
    assert state.environments[SEED].rounds[0].turn.slot == 0
    assert state.slots[0].phase is Phase.PLAYING
    assert state.slots[1].phase is Phase.FREE
    assert state.unexpected == 0


def test_a_new_epoch_keeps_the_work_and_forgets_the_servers() -> None:
    state = fold_all(started(), sampled(), started(2), epoch=2)
    assert state.epoch == 2 and state.slots[0].phase is Phase.DESIGNING and not state.serving


def test_an_unknown_environment_is_counted_not_raised() -> None:
    assert fold_all(started(), validated()).unexpected == 1
    assert EMPTY.digest() == State().digest()
