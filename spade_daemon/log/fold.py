"""The fold: ``evolve(state, event) -> state``. Pure and total: same log, same state, to the byte.

An event about something the log never introduced is counted as unexpected and changes nothing else; an event of an
older epoch than the one in force is counted as stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from immutables import Map

from schemas.base import Payload
from schemas.event import Event
from schemas.events import (
    CheckpointPublished,
    DocumentSampled,
    EnvironmentProposed,
    EnvironmentReplayed,
    EnvironmentRetired,
    EnvironmentSeeded,
    EnvironmentValidated,
    EpisodeCompleted,
    EventDead,
    IncidentRaised,
    RegretComputed,
    RunStarted,
    RunStopped,
    SwapFailed,
    WeightsSwapped,
)
from schemas.words import Arm, GateCheck, Origin
from spade_daemon.log.state import (
    EMPTY,
    RECENT,
    Environment,
    Incident,
    Outcome,
    Phase,
    Round,
    SkillStats,
    Slot,
    State,
)


def evolve(state: State, sequence: int, event: Event[Payload]) -> State:
    """The state after ``event``, which the log holds at ``sequence``."""
    state = replace(state, sequence=sequence, run=event.run)
    if event.epoch < state.epoch:
        return replace(state, stale=state.stale + 1)
    state = replace(state, counts=state.counts.set(event.type, state.counts.get(event.type, 0) + 1))
    after = RULES[event.type](state, event.data)
    return replace(state, unexpected=state.unexpected + 1) if after is None else after


def fold(events: Iterable[tuple[int, Event[Payload]]], state: State = EMPTY) -> State:
    """Apply ``(sequence, event)`` pairs in order."""
    for sequence, event in events:
        state = evolve(state, sequence, event)
    return state


def _run_started(state: State, data: RunStarted) -> State:
    return replace(
        state,
        epoch=data.epoch,
        boot=data.boot,
        model=data.model,
        starts=state.starts.set(data.epoch, state.sequence),
        serving=Map(),
        running=True,
    )


def _run_stopped(state: State, data: RunStopped) -> State:
    return replace(state, running=False)


def _environment_seeded(state: State, data: EnvironmentSeeded) -> State:
    seeded = Environment(
        id=data.environment,
        origin=Origin.SEED,
        setting=data.setting,
        skill=data.skill,
        born=state.sequence,
        code=data.code,
        description=data.description,
        hint=data.hint,
        accepted=True,
    )
    return _with_environment(state, seeded)


def _document_sampled(state: State, data: DocumentSampled) -> State:
    slot = Slot(turn=data.turn, phase=Phase.DESIGNING, since=state.sequence)
    return replace(state, slots=state.slots.set(data.turn.slot, slot))


def _environment_replayed(state: State, data: EnvironmentReplayed) -> State | None:
    environment = state.environments.get(data.environment)
    if environment is None:
        return None
    number = data.plan.round
    if number in environment.rounds and environment.rounds[number].turn != data.turn:
        # Another slot plays this round already: this one is free again, and its handler takes another turn.
        free = Slot(data.turn, Phase.FREE, data.environment, number, state.sequence)
        return replace(state, slots=state.slots.set(data.turn.slot, free))
    round_ = Round(plan=data.plan, turn=data.turn, began=state.sequence)
    state = _with_environment(state, replace(environment, rounds=environment.rounds.set(number, round_)))
    slot = Slot(data.turn, Phase.PLAYING, data.environment, number, state.sequence)
    return replace(state, slots=state.slots.set(data.turn.slot, slot))


def _environment_proposed(state: State, data: EnvironmentProposed) -> State:
    proposed = Environment(
        id=data.environment,
        origin=Origin.DESIGNED,
        setting=data.setting,
        skill=data.skill,
        born=state.sequence,
        code=data.code,
        document=data.document,
        design=data.sample,
        references=data.references,
        accepted=False if data.failure else None,
        reason=data.failure,
    )
    state = _with_environment(state, proposed)
    state = _with_skill(state, data.skill, designed=1)
    slot = Slot(data.turn, Phase.VETTING, data.environment, 0, state.sequence)
    state = replace(state, slots=state.slots.set(data.turn.slot, slot))
    return _design_failed(state, proposed, data.failure) if data.failure else state


def _environment_validated(state: State, data: EnvironmentValidated) -> State | None:
    environment = state.environments.get(data.environment)
    if environment is None:
        return None
    verdict = replace(
        environment,
        accepted=data.accepted,
        reason=data.reason,
        description=data.description,
        hint=data.hint,
        embedding=data.embedding,
    )
    if not data.accepted or data.plan is None:
        progress = sum(check.passed for check in data.checks) / len(GateCheck)
        return _design_failed(_with_environment(state, verdict), verdict, data.reason or "rejected", min(1.0, progress))
    round_ = Round(plan=data.plan, turn=data.turn, began=state.sequence)
    state = _with_environment(state, replace(verdict, rounds=verdict.rounds.set(0, round_)))
    state = _with_skill(state, verdict.skill, accepted=1)
    slot = Slot(data.turn, Phase.PLAYING, data.environment, 0, state.sequence)
    state = replace(state, slots=state.slots.set(data.turn.slot, slot))
    return replace(state, recent_designs=(*state.recent_designs, True)[-RECENT:])


def _episode_completed(state: State, data: EpisodeCompleted) -> State | None:
    environment = state.environments.get(data.environment)
    round_ = environment.rounds.get(data.round) if environment else None
    if environment is None or round_ is None:
        return None
    episodes = round_.episodes.set((data.arm.value, data.play), data)
    environment = replace(
        environment,
        rounds=environment.rounds.set(data.round, replace(round_, episodes=episodes)),
        last_played=state.sequence,
    )
    if data.arm is Arm.PLAIN and data.return_ is not None:
        environment = replace(environment, plays=environment.plays + 1, wins=environment.wins + (data.return_ > 0))
    if data.fault is not None:
        state = replace(state, faults=_bump(state.faults, data.fault))
    return _with_environment(state, environment)


def _regret_computed(state: State, data: RegretComputed) -> State | None:
    environment = state.environments.get(data.environment)
    round_ = environment.rounds.get(data.round) if environment else None
    if environment is None or round_ is None:
        return None
    environment = replace(environment, rounds=environment.rounds.set(data.round, replace(round_, regret=data)))
    if data.void is None:
        environment = replace(environment, regret=data.regret, regret_se=data.regret_se)
        state = _with_skill(
            state, environment.skill, rounds=1, regret_sum=data.regret or 0.0, win_sum=data.win_rate or 0.0
        )
    else:
        environment = replace(environment, void_rounds=environment.void_rounds + 1)
    outcome = Outcome(
        sequence=state.sequence,
        environment=data.environment,
        round=data.round,
        skill=environment.skill,
        design=environment.design if data.designer_reward is not None else None,
        reward=data.designer_reward,
        invalid=None,
        agent_signal=data.agent_signal and data.void is None,
        plain=tuple(_plain_episodes(round_)) if data.void is None else (),
    )
    state = _with_environment(state, environment)
    if outcome.design is None and not outcome.agent_signal:
        return replace(state, silent_rounds=state.silent_rounds + 1)
    return replace(state, outcomes=(*state.outcomes, outcome))


def _environment_retired(state: State, data: EnvironmentRetired) -> State:
    state = replace(state, retirements=_bump(state.retirements, data.reason))
    slot = state.slots.get(data.turn.slot)
    if slot is None or slot.turn != data.turn:
        return state
    free = Slot(data.turn, Phase.FREE, data.environment, data.round, state.sequence)
    return replace(state, slots=state.slots.set(data.turn.slot, free))


def _checkpoint_published(state: State, data: CheckpointPublished) -> State:
    consumed = [o for o in state.outcomes if o.sequence <= data.consumed_sequence]
    kept = tuple(o for o in state.outcomes if o.sequence > data.consumed_sequence)
    for outcome in consumed:
        state = _forget_episodes(state, outcome)
    return replace(
        state,
        outcomes=kept,
        checkpoint=data,
        checkpoints=state.checkpoints.set(data.policy, data.path),
        trained_groups=state.trained_groups + len(data.groups),
        trained_designs=state.trained_designs + len(data.designs),
    )


def _weights_swapped(state: State, data: WeightsSwapped) -> State:
    return replace(state, serving=state.serving.set(data.server, data.policy), swaps=state.swaps + 1)


def _swap_failed(state: State, data: SwapFailed) -> State:
    serving = state.serving.delete(data.server) if data.server in state.serving else state.serving
    if data.serving is not None:
        serving = serving.set(data.server, data.serving)
    message = f"swap to version {data.policy} on {data.server} failed at {data.stage}: {data.error}"
    return _with_incident(replace(state, serving=serving), "swap", message)


def _event_dead(state: State, data: EventDead) -> State:
    message = f"{data.handler} gave up on event {data.sequence} after {data.attempts} attempts: {data.error}"
    slot = state.slots.get(data.turn.slot) if data.turn else None
    if slot is not None and slot.turn == data.turn:
        free = replace(slot, phase=Phase.FREE, since=state.sequence)
        state = replace(state, slots=state.slots.set(slot.turn.slot, free))
    return _with_incident(state, data.handler, message, f"spade events show {data.sequence}")


def _incident_raised(state: State, data: IncidentRaised) -> State:
    return _with_incident(state, data.source, data.message, data.remedy)


RULES: dict[str, Callable[[State, Any], State | None]] = {
    RunStarted.type: _run_started,
    RunStopped.type: _run_stopped,
    EnvironmentSeeded.type: _environment_seeded,
    DocumentSampled.type: _document_sampled,
    EnvironmentReplayed.type: _environment_replayed,
    EnvironmentProposed.type: _environment_proposed,
    EnvironmentValidated.type: _environment_validated,
    EpisodeCompleted.type: _episode_completed,
    RegretComputed.type: _regret_computed,
    EnvironmentRetired.type: _environment_retired,
    CheckpointPublished.type: _checkpoint_published,
    WeightsSwapped.type: _weights_swapped,
    SwapFailed.type: _swap_failed,
    EventDead.type: _event_dead,
    IncidentRaised.type: _incident_raised,
}
"""One rule for each event type; ``None`` from a rule means the event speaks of something unknown."""


def _bump(counts: Map[str, int], name: str) -> Map[str, int]:
    return counts.set(str(name), counts.get(str(name), 0) + 1)


def _with_environment(state: State, environment: Environment) -> State:
    return replace(state, environments=state.environments.set(environment.id, environment))


def _with_incident(state: State, source: str, message: str, remedy: str = "") -> State:
    incident = Incident(state.sequence, source, message, remedy)
    return replace(state, incidents=(*state.incidents, incident)[-RECENT:])


def _with_skill(state: State, skill: str, **more: float) -> State:
    old = state.skills.get(skill, SkillStats())
    new = replace(old, **{name: getattr(old, name) + value for name, value in more.items()})
    return replace(state, skills=state.skills.set(skill, new))


def _design_failed(state: State, environment: Environment, reason: str, progress: float = 0.0) -> State:
    """Count a rejected or unparsable design and hand its tokens to the trainer as an invalid outcome."""
    outcome = Outcome(
        sequence=state.sequence,
        environment=environment.id,
        round=0,
        skill=environment.skill,
        design=environment.design,
        reward=None,
        invalid=str(reason),
        agent_signal=False,
        progress=progress,
    )
    return replace(
        state,
        rejections=_bump(state.rejections, reason),
        outcomes=(*state.outcomes, outcome),
        recent_designs=(*state.recent_designs, False)[-RECENT:],
    )


def _plain_episodes(round_: Round) -> Iterable[EpisodeCompleted]:
    """Plain episodes with a return, in play order."""
    for _, play, _ in (item for item in round_.plan.episodes() if item[0] is Arm.PLAIN):
        episode = round_.episodes.get((Arm.PLAIN.value, play))
        if episode is not None and episode.return_ is not None:
            yield episode


def _forget_episodes(state: State, outcome: Outcome) -> State:
    """Drop what only the trainer needed: the log still has it."""
    environment = state.environments.get(outcome.environment)
    round_ = environment.rounds.get(outcome.round) if environment else None
    if environment is None or round_ is None:
        return state
    rounds = environment.rounds.set(outcome.round, replace(round_, episodes=Map()))
    return _with_environment(state, replace(environment, rounds=rounds))
