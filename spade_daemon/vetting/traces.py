"""What the gate saw of an environment: traces, and how two of them differ. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class Exchange:
    """One action and the answer to it."""

    action: str
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: str = "{}"
    """Canonical JSON."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One episode in the sandbox, as far as it went."""

    seed: int
    observation: str = ""
    """What ``reset`` returned."""
    exchanges: tuple[Exchange, ...] = ()
    solution: tuple[str, ...] | None = None
    """What ``solution()`` returned right after ``reset``, where it was asked."""
    fault: str | None = None
    """The environment's own failure that ended the episode, in one line."""

    def return_(self) -> float:
        """The last reward if the environment terminated, else 0: what an agent would earn."""
        last = self.exchanges[-1] if self.exchanges else None
        return last.reward if last is not None and last.terminated else 0.0

    def won(self) -> bool:
        """Whether the episode reached full success."""
        return self.fault is None and self.return_() == 1.0


def first_difference(expected: Trace, found: Trace) -> str | None:
    """Name the first thing in which two traces of one seed and the same actions differ, or ``None``."""
    if expected.observation != found.observation:
        return f"first observation: {_became(expected.observation, found.observation)}"
    if expected.solution != found.solution:
        return f"solution: {_became(expected.solution, found.solution)}"
    for step, (one, other) in enumerate(zip_longest(expected.exchanges, found.exchanges), start=1):
        if one is None or other is None:
            return f"step {step}: the episode ended earlier ({found.fault or expected.fault or 'without a fault'})"
        for name in ("action", "observation", "reward", "terminated", "truncated", "info"):
            if getattr(one, name) != getattr(other, name):
                return f"step {step}, {name}: {_became(getattr(one, name), getattr(other, name))}"
    if expected.fault != found.fault:
        return f"fault: {_became(expected.fault, found.fault)}"
    return None


def clip(value: object, limit: int = 80) -> str:
    """A value in one short line, for the detail of a check."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _became(one: object, other: object) -> str:
    if isinstance(one, str) and isinstance(other, str):
        at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        start = max(0, at - 20)
        one, other = one[start:], other[start:]
    return f"{clip(one, 60)} became {clip(other, 60)}"
