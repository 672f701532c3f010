"""The return of one episode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

ReturnKind = Literal["outcome", "discounted"]


def episode_return(
    rewards: Sequence[float], terminated: bool, *, kind: ReturnKind = "outcome", discount: float = 0.99
) -> float:
    """Return of an episode in [-1, 1].

    Args:
        rewards: reward of each step, in order.
        terminated: whether the environment itself said that the episode is over (not a limit of ours or its own).
        kind: ``outcome`` is the last reward if terminated, else 0: a shaped reward on the way earns nothing, so it
            cannot be farmed. ``discounted`` is the sum of ``discount ** t * rewards[t]``, however the episode ended.
        discount: factor per step of ``discounted``, in [0, 1].

    Raises:
        ValueError: a reward is not finite; the sandbox must have refused it.
    """
    if not all(math.isfinite(reward) for reward in rewards):
        raise ValueError("rewards must be finite: refuse the environment's reply before it gets here")
    if kind == "outcome":
        value = rewards[-1] if terminated and rewards else 0.0
    else:
        value = math.fsum(discount**step * reward for step, reward in enumerate(rewards))
    return max(-1.0, min(1.0, float(value)))
