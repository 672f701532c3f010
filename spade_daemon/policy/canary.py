"""The canary: a fixed prompt that trainer and server both score, to prove that they hold the same weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spade_daemon.policy.chat import ChatTokens, Message

CANARY = (
    Message("user", "Write the numbers from one to five, then name three colours and a city in France."),
    Message("assistant", "1, 2, 3, 4, 5. Red, green and blue. Paris lies on the Seine.\n\ndef f(x):\n    return x + 1"),
    Message("user", "What comes after 5, and why?"),
)
"""Prose, numbers and code: enough that a stale or mixed layer shows somewhere."""


def canary_ids(chat: ChatTokens) -> tuple[int, ...]:
    """The token ids to score; the same in every process with the same tokenizer."""
    return chat.render(CANARY)


def max_difference(expected: Sequence[float], found: Sequence[float]) -> float:
    """Largest absolute difference of log-probabilities; infinite where they cannot be compared."""
    if len(expected) != len(found) or not expected:
        return math.inf
    worst = max(abs(a - b) for a, b in zip(expected, found, strict=True))
    return worst if math.isfinite(worst) and all(map(math.isfinite, (*expected, *found))) else math.inf


__all__ = ["CANARY", "canary_ids", "max_difference"]
