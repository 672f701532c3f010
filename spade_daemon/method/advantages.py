"""Advantages: how much better than its peers a play or a design did."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from spade_daemon.method.regret import has_signal

AdvantageKind = Literal["mean", "zscore"]
EPSILON = 1e-8


def agent_advantages(returns: Sequence[float], kind: AdvantageKind = "mean") -> tuple[float, ...] | None:
    """Advantages of the plain plays of one environment in one round.

    Args:
        returns: raw returns of the whole group.
        kind: ``mean`` subtracts the group's mean; ``zscore`` also divides by its population standard deviation.

    Returns:
        One advantage a play, or ``None`` when all returns are equal: such a group carries no signal and belongs
        neither in the batch nor in its denominator.
    """
    if not returns or not has_signal(returns):
        return None
    centred = _centred(returns)
    if kind == "mean":
        return centred
    deviation = math.sqrt(math.fsum(value * value for value in centred) / len(centred))
    return tuple(value / (deviation + EPSILON) for value in centred)


def designer_advantages(designs: Sequence[tuple[str, float]]) -> tuple[float, ...]:
    """Advantages of the designs of one batch: reward minus the mean of the same skill's designs.

    There is no division by the standard deviation: a batch whose designs are all nearly alike must not be blown up.

    Args:
        designs: (skill, reward) of each design.

    Returns:
        One advantage a design, in order. Exactly 0 where a skill has one design or equal rewards: no signal.
    """
    by_skill: dict[str, list[float]] = defaultdict(list)
    for skill, reward in designs:
        by_skill[skill].append(reward)
    baseline = {skill: _baseline(rewards) for skill, rewards in by_skill.items()}
    return tuple(reward - baseline[skill] for skill, reward in designs)


def designer_scale(designs: int, plays: int, window: int, cap: float = 50.0) -> float:
    """The recipe's factor on designer advantages: plays per design times the window, at most ``cap``.

    Only for presets that repeat the paper; the default balances the roles by separate token denominators.
    """
    if designs <= 0 or plays <= 0:
        return 1.0
    return min(plays / designs * window, cap)


def _centred(values: Sequence[float]) -> tuple[float, ...]:
    mean = math.fsum(values) / len(values)
    return tuple(value - mean for value in values)


def _baseline(rewards: Sequence[float]) -> float:
    # The mean of equal floats need not equal them in the last bit; a dust advantage would count as signal.
    return math.fsum(rewards) / len(rewards) if has_signal(rewards) else rewards[0]
