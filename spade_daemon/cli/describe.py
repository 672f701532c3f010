"""One line for each event: what a person wants to know of it while it passes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from schemas.words import Role
from spade_daemon.log.stored import Stored


def describe(stored: Stored[Any]) -> str:
    """The event in words, without its time and type."""
    return DESCRIPTIONS[stored.event.type](stored.event.data)


def line(stored: Stored[Any]) -> str:
    """``sequence time type words`` in columns."""
    event = stored.event
    return f"{stored.sequence:>6} {event.time:%H:%M:%S} {event.type:<22} {describe(stored)}"


def record(stored: Stored[Any]) -> dict[str, Any]:
    """The event with its sequence, for JSON output."""
    return {"sequence": stored.sequence, **stored.event.model_dump(mode="json")}


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def _run_started(data: RunStarted) -> str:
    return f"epoch {data.epoch} with {data.slots} slots, model {data.model}"


def _run_stopped(data: RunStopped) -> str:
    return f"epoch {data.epoch}: {data.reason}"


def _seeded(data: EnvironmentSeeded) -> str:
    return f"{data.environment} {data.name} ({data.setting}, {data.skill})"


def _sampled(data: DocumentSampled) -> str:
    return f"slot {data.turn.token()} {data.title!r} ({data.words} words) for {data.skill}"


def _replayed(data: EnvironmentReplayed) -> str:
    return f"slot {data.turn.token()} {data.environment} round {data.plan.round} ({data.reason})"


def _proposed(data: EnvironmentProposed) -> str:
    outcome = f"no environment: {data.failure}" if data.failure else "code"
    return f"{data.environment} {outcome}, {data.sample.sampled_tokens} tokens by version {data.sample.version_min}"


def _validated(data: EnvironmentValidated) -> str:
    if data.accepted:
        return f"{data.environment} accepted: {data.description.splitlines()[0] if data.description else ''}"
    failed = next((check for check in data.checks if not check.passed), None)
    return f"{data.environment} rejected by {data.reason}: {failed.detail if failed else ''}"


def _episode(data: EpisodeCompleted) -> str:
    score = f"return {number(data.return_)}" if data.return_ is not None else f"void ({data.fault})"
    return f"{data.environment}.{data.round} {data.arm} {data.play}: {score}, {data.turns} turns, {data.stop}"


def _regret(data: RegretComputed) -> str:
    if data.void:
        return f"{data.environment}.{data.round} void: {data.void}"
    error = f" ± {number(data.regret_se)}" if data.regret_se is not None else ""
    reward = f", designer earns {number(data.designer_reward)}" if data.designer_reward is not None else ""
    return (
        f"{data.environment}.{data.round} regret {number(data.regret)}{error}, win rate {number(data.win_rate)}{reward}"
    )


def _retired(data: EnvironmentRetired) -> str:
    return f"{data.environment}.{data.round} {data.reason}, slot {data.turn.slot} is free"


def _checkpoint(data: CheckpointPublished) -> str:
    return (
        f"version {data.policy} from {len(data.groups)} groups and {len(data.designs)} designs in {data.seconds:.0f} s"
        + "".join(
            f", {role} loss {data.metrics[f'{role}_loss']:.4f}" for role in Role if f"{role}_loss" in data.metrics
        )
    )


def _swapped(data: WeightsSwapped) -> str:
    canary = f", canary differs by {data.canary_max_diff:.1e}" if data.canary_max_diff is not None else ""
    return f"version {data.policy} on {data.server} in {data.seconds:.1f} s{canary}"


def _swap_failed(data: SwapFailed) -> str:
    return f"version {data.policy} on {data.server} at {data.stage}: {data.error}"


def _dead(data: EventDead) -> str:
    return f"{data.handler} gave up on event {data.sequence} after {data.attempts} attempts: {data.error}"


def _incident(data: IncidentRaised) -> str:
    return f"{data.source}: {data.message}; {data.remedy}"


DESCRIPTIONS: dict[str, Callable[[Any], str]] = {
    RunStarted.type: _run_started,
    RunStopped.type: _run_stopped,
    EnvironmentSeeded.type: _seeded,
    DocumentSampled.type: _sampled,
    EnvironmentReplayed.type: _replayed,
    EnvironmentProposed.type: _proposed,
    EnvironmentValidated.type: _validated,
    EpisodeCompleted.type: _episode,
    RegretComputed.type: _regret,
    EnvironmentRetired.type: _retired,
    CheckpointPublished.type: _checkpoint,
    WeightsSwapped.type: _swapped,
    SwapFailed.type: _swap_failed,
    EventDead.type: _dead,
    IncidentRaised.type: _incident,
}
