"""Regret: the paired difference between hinted and plain returns (paper section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.words import Fault, VoidReason


@dataclass(frozen=True, slots=True)
class Play:
    """What an episode contributes to its round."""

    seed: int
    return_: float | None
    """In [-1, 1]; ``None`` when the episode is void."""
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Regret:
    """The figures of one round. All are ``None`` when the round is void; ``pairs`` is then 0."""

    void: VoidReason | None
    regret: float | None
    """Mean of hinted minus plain over the pairs; ``None`` also in a round without a hinted arm."""
    standard_error: float | None
    """Of that mean: sample standard deviation over the square root of ``pairs``; ``None`` below two pairs."""
    pairs: int
    plain_mean: float | None
    hinted_mean: float | None
    win_rate: float | None
    """Share of plain returns above 0."""
    agent_signal: bool
    """Plain returns are not all equal: the agent's group has an advantage to learn from."""


def paired_regret(plain: Sequence[Play], hinted: Sequence[Play]) -> Regret:
    """Compare the two arms of a round seed by seed.

    Pairing removes the variance between instances, which at 8 plays is larger than the regret itself. A round lives
    or dies whole: dropping single plays would bias the mean towards what does not crash.

    Args:
        plain: the plays without hint, at least one.
        hinted: the plays with hint on the same seeds in the same order, or none at all when an environment is played
            again without hint.

    Raises:
        ValueError: the arms do not have the same distinct seeds in the same order.
    """
    seeds = [play.seed for play in plain]
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError("a round needs at least one plain play, and each seed once")
    if hinted and [play.seed for play in hinted] != seeds:
        raise ValueError("both arms of a round must have the same seeds in the same order")
    void = void_reason([*plain, *hinted])
    if void is not None:
        return Regret(void, None, None, 0, None, None, None, agent_signal=False)
    without = _returns(plain)
    win_rate = sum(value > 0 for value in without) / len(without)
    signal = has_signal(without)
    if not hinted:
        return Regret(None, None, None, 0, _mean(without), None, win_rate, signal)
    with_hint = _returns(hinted)
    gaps = [high - low for high, low in zip(with_hint, without, strict=True)]
    return Regret(
        void=None,
        regret=_mean(gaps),
        standard_error=_standard_error(gaps),
        pairs=len(gaps),
        plain_mean=_mean(without),
        hinted_mean=_mean(with_hint),
        win_rate=win_rate,
        agent_signal=signal,
    )


def void_reason(plays: Sequence[Play]) -> VoidReason | None:
    """Why a round with these plays counts for nothing; ``None`` when it counts.

    The environment's own fault comes first: a designer must not be excused by a server that failed as well.
    """
    if any(play.fault is Fault.ENVIRONMENT for play in plays):
        return VoidReason.ENVIRONMENT_FAULT
    if any(play.fault is Fault.INFRASTRUCTURE or play.return_ is None for play in plays):
        return VoidReason.INFRASTRUCTURE_FAULT
    return None


def has_signal(returns: Sequence[float]) -> bool:
    """Whether the raw returns of a group are not all equal (exact equality, no tolerance)."""
    return any(value != returns[0] for value in returns)


def _returns(plays: Sequence[Play]) -> list[float]:
    return [play.return_ for play in plays if play.return_ is not None]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _standard_error(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = _mean(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))
