"""What a design earns. Every component is recorded with each round, whichever of them is the reward in use."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from schemas.words import VoidReason
from spade_daemon.method.regret import Regret

RewardName = Literal["regret", "blend", "solve_rate"]

PLATEAU_LOW, PLATEAU_HIGH, PLATEAU_RAMP = 0.4, 0.6, 0.25
PLATEAU_WEIGHT, REGRET_WEIGHT = 0.6, 0.4
REGRET_SCALE = 0.15
"""Regret at which the blend's regret term is full."""
VARIANCE_TARGET, VARIANCE_WIDTH = 0.25, 0.1
"""Variance of a fair coin, and the width of the bonus around it (a standard deviation)."""


@dataclass(frozen=True, slots=True)
class RewardComponents:
    """Designer rewards of one round, and the terms they are made of."""

    regret: float
    """The paper's equation with its floor: ``max(0, regret)``, so that no valid design is below a faulty one."""
    blend: float
    """The paper's shipped recipe: 0.6 ``plateau`` + 0.4 ``regret_share``."""
    solve_rate: float
    """The ablation without regret: ``plateau`` alone."""
    regret_share: float
    """Regret over 0.15, clipped to [0, 1]."""
    variance_bonus: float
    """1 where wins are a fair coin, falling off as a normal density in the variance of a win."""

    def as_dict(self) -> dict[str, float]:
        """The form in which the event stores them."""
        return asdict(self)


def plateau(win_rate: float, low: float = PLATEAU_LOW, high: float = PLATEAU_HIGH, ramp: float = PLATEAU_RAMP) -> float:
    """1 for a win rate within [low, high], falling linearly to 0 over ``ramp`` on either side."""
    distance = max(low - win_rate, win_rate - high, 0.0)
    return max(0.0, 1.0 - distance / ramp)


def variance_bonus(win_rate: float) -> float:
    """Bonus in (0, 1] for wins that are neither sure nor impossible."""
    variance = win_rate * (1.0 - win_rate)
    return math.exp(-((variance - VARIANCE_TARGET) ** 2) / (2 * VARIANCE_WIDTH**2))


def reward_components(round_: Regret) -> RewardComponents | None:
    """All components of a round; ``None`` when it is void or had no hinted arm."""
    if round_.regret is None or round_.win_rate is None:
        return None
    level = plateau(round_.win_rate)
    share = max(0.0, min(1.0, round_.regret / REGRET_SCALE))
    return RewardComponents(
        regret=max(0.0, round_.regret),
        blend=PLATEAU_WEIGHT * level + REGRET_WEIGHT * share,
        solve_rate=level,
        regret_share=share,
        variance_bonus=variance_bonus(round_.win_rate),
    )


def invalid_design_reward(invalid_reward: float, credit: float, progress: float) -> float:
    """What a design earns that the gate refused: ``invalid_reward``, nearer to 0 the more checks it passed.

    Args:
        invalid_reward: what a reply without any environment earns.
        credit: share of the way to 0 that a design earns which passed everything but the last check, in [0, 1].
        progress: share of the checks that it passed, in [0, 1].
    """
    return invalid_reward * (1.0 - credit * progress)


def designer_reward(name: RewardName, round_: Regret, invalid_reward: float) -> float | None:
    """What the design of a round earns.

    Args:
        name: the reward in use.
        round_: the figures of its first round.
        invalid_reward: what a rejected design earns. A design whose environment fails in play earns the same in every
            variant: passing the gate must not be a way round it.

    Returns:
        The reward, or ``None`` when the round says nothing about the design (infrastructure fault, no hinted arm).
    """
    if round_.void is VoidReason.ENVIRONMENT_FAULT:
        return invalid_reward
    components = reward_components(round_)
    if components is None:
        return None
    match name:
        case "regret":
            return components.regret
        case "blend":
            return components.blend
        case "solve_rate":
            return components.solve_rate
