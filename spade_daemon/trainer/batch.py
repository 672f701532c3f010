"""Which outcomes make up the next batch: a pure function of the log.

Outcomes are taken in sequence order and a batch is always a prefix of those that wait, so every process that folds the
same log plans the same batch, and after a crash the batch is planned again exactly as before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from schemas.records import SampleRef
from spade_daemon.log.state import Outcome, State
from spade_daemon.method.advantages import agent_advantages, designer_advantages
from spade_daemon.method.rewards import invalid_design_reward
from spade_daemon.settings import Settings


@dataclass(frozen=True, slots=True)
class Play:
    """One plain episode of a group that is trained."""

    play: int
    sample: SampleRef
    advantage: float


@dataclass(frozen=True, slots=True)
class Group:
    """The plain plays of one round of one environment: trained whole or not at all.

    A play without a single sampled token counts in the group's mean and has no entry in ``plays``.
    """

    sequence: int
    environment: str
    round: int
    plays: tuple[Play, ...]


@dataclass(frozen=True, slots=True)
class Design:
    """One designer sample that is trained."""

    sequence: int
    environment: str
    skill: str
    sample: SampleRef
    reward: float
    advantage: float


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the next optimizer step trains. ``dropped`` counts what is consumed untrained, by reason.

    Reasons of groups: ``no_signal`` (equal returns), ``stale`` (too old a policy), ``void`` (a fault that is not the
    agent's), ``no_tokens``. Reasons of designs: ``invalid``, ``design_no_signal``, ``design_no_tokens``,
    ``design_over_limit`` and ``design_untrained`` (the designer is frozen).
    """

    policy: int
    """The version that training this batch makes."""
    through_sequence: int
    """Sequence of the last outcome in the batch; every waiting outcome up to it is consumed."""
    groups: tuple[Group, ...]
    designs: tuple[Design, ...]
    dropped: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Priced:
    """A design with the reward that the settings give it."""

    outcome: Outcome
    sample: SampleRef
    reward: float


def plan_batch(state: State, settings: Settings) -> BatchPlan | None:
    """The next batch, or ``None`` while too little waits.

    A batch closes at the first outcome at which ``trainer.groups_per_batch`` groups with a signal have accumulated, or
    ``trainer.max_wait_designs`` designs have an outcome, and something can be learned from it at all.
    """
    pending = sorted(state.outcomes, key=lambda outcome: outcome.sequence)
    return _first_batch(pending, state.version, settings)


def batches_ready(state: State, settings: Settings) -> int:
    """How many batches the waiting outcomes make, the one that may be in training included."""
    pending = sorted(state.outcomes, key=lambda outcome: outcome.sequence)
    ready = 0
    while plan := _first_batch(pending, state.version, settings):
        ready += 1
        pending = [outcome for outcome in pending if outcome.sequence > plan.through_sequence]
    return ready


def _first_batch(pending: list[Outcome], version: int, settings: Settings) -> BatchPlan | None:
    groups: list[Group] = []
    priced: list[_Priced] = []
    designs = 0
    dropped: Counter[str] = Counter()
    for outcome in pending:
        if outcome.invalid is None:
            found = _group(outcome, version, settings)
            if isinstance(found, Group):
                groups.append(found)
            else:
                dropped[found] += 1
        if outcome.design is not None:
            designs += 1
            price = _priced(outcome, outcome.design, settings)
            if isinstance(price, _Priced):
                priced.append(price)
            else:
                dropped[price] += 1
        if len(groups) < settings.trainer.groups_per_batch and designs < settings.trainer.max_wait_designs:
            continue
        if not groups and not _contrast(priced):
            continue
        chosen, left = _choose(priced, settings.trainer.max_designs)
        if groups or chosen:
            total = dict(sorted((dropped + left).items()))
            return BatchPlan(version + 1, outcome.sequence, tuple(groups), chosen, total)
    return None


def _group(outcome: Outcome, version: int, settings: Settings) -> Group | str:
    """The group of a finished round, or the reason why it is not trained."""
    if not outcome.plain:
        return "void"
    returns = [episode.return_ for episode in outcome.plain if episode.return_ is not None]
    advantages = agent_advantages(returns, settings.agent.advantage) if outcome.agent_signal else None
    if advantages is None:
        return "no_signal"
    plays = tuple(
        Play(episode.play, episode.sample, advantage)
        for episode, advantage in zip(outcome.plain, advantages, strict=True)
        if episode.sample is not None and episode.sample.sampled_tokens > 0
    )
    if not any(play.advantage for play in plays):
        return "no_tokens"
    if version - min(play.sample.version_min for play in plays) > settings.curriculum.max_policy_lag:
        return "stale"
    return Group(outcome.sequence, outcome.environment, outcome.round, plays)


def _priced(outcome: Outcome, sample: SampleRef, settings: Settings) -> _Priced | str:
    """A design with its reward, or the reason why it is not trained."""
    if not settings.designer.train:
        return "design_untrained"
    if outcome.invalid is not None:
        if not settings.designer.train_invalid:
            return "invalid"
        designer = settings.designer
        price = invalid_design_reward(designer.invalid_reward, designer.invalid_credit, outcome.progress)
        return _Priced(outcome, sample, price)
    if outcome.reward is None:
        return "design_no_signal"
    return _Priced(outcome, sample, outcome.reward)


def _contrast(priced: list[_Priced]) -> bool:
    """Whether two designs of one skill have different rewards."""
    first: dict[str, float] = {}
    return any(first.setdefault(item.outcome.skill, item.reward) != item.reward for item in priced)


def _choose(priced: list[_Priced], limit: int) -> tuple[tuple[Design, ...], Counter[str]]:
    """Designs to train, and the count of the others by reason.

    The baseline of a skill is the mean over all its designs in the batch, also those beyond ``limit``: which designs
    fit must not change what is expected of them.
    """
    left: Counter[str] = Counter()
    candidates: list[tuple[bool, Design]] = []
    advantages = designer_advantages([(item.outcome.skill, item.reward) for item in priced])
    for item, advantage in zip(priced, advantages, strict=True):
        outcome = item.outcome
        if advantage == 0.0:
            left["design_no_signal"] += 1
        elif item.sample.sampled_tokens == 0:
            left["design_no_tokens"] += 1
        else:
            design = Design(outcome.sequence, outcome.environment, outcome.skill, item.sample, item.reward, advantage)
            candidates.append((outcome.invalid is not None, design))
    candidates.sort(key=lambda item: (item[0], item[1].sequence))
    over = max(0, len(candidates) - limit)
    if over:
        left["design_over_limit"] = over
    chosen = sorted((design for _, design in candidates[:limit]), key=lambda design: design.sequence)
    return tuple(chosen), left
