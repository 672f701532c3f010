"""What a slot does next. Every choice is a function of the run's seed and the slot's turn: a replay makes the same."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from spade_daemon.method.rewards import REGRET_SCALE, plateau

MAX_SEED = 2**31 - 1
STALENESS_WEIGHT = 0.3
"""Share of a replay's probability that goes by staleness; the rest goes by merit."""
MERIT_FLOOR, MERIT_PLATEAU, MERIT_REGRET = 0.1, 0.5, 0.4
"""Parts of a candidate's merit: what any has, what a middling win rate adds, what a high regret adds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A remembered environment that may be played again."""

    environment: str
    regret: float | None
    """``None`` while no round of it has counted."""
    win_rate: float | None
    last_played: int
    """Sequence of the event that ended its newest round; 0 when it has never been played."""


def active_skills(skills: Sequence[str], k: int, window: int) -> tuple[str, ...]:
    """The ``k`` skills of a window: consecutive windows go round the list. All when ``k`` is no real restriction."""
    count = len(skills)
    if k <= 0 or k >= count:
        return tuple(skills)
    return tuple(skills[(window * k + offset) % count] for offset in range(k))


def active_skill(skills: Sequence[str], k: int, slot: int, generation: int, slots: int) -> str:
    """The skill that a slot's turn trains: the slots share out the skills of window ``generation``.

    With fewer slots than active skills the shares move on each time the same window returns, so that no skill is left
    out.

    Raises:
        ValueError: there are no skills.
    """
    if not skills:
        raise ValueError("there are no skills: set designer.skills")
    active = active_skills(skills, k, generation)
    returns = generation // (len(skills) // math.gcd(len(skills), len(active)))
    return active[(slot + returns * slots) % len(active)]


def choose_next(
    seed: int,
    slot: int,
    generation: int,
    *,
    replay_rate: float,
    replay_when_dry: float,
    dry: bool,
    candidates: Sequence[Candidate],
) -> str | None:
    """Choose between a new document and a remembered environment.

    Args:
        seed: of the run's curriculum.
        slot: the slot that is free.
        generation: the turn that begins.
        replay_rate: chance of a replay.
        replay_when_dry: that chance while ``dry``.
        dry: hardly any design has been accepted lately.
        candidates: what may be replayed, in any order.

    Returns:
        The environment to replay, or ``None`` for a document.
    """
    rng = _generator("choose", seed, slot, generation)
    if rng.random() >= (replay_when_dry if dry else replay_rate) or not candidates:
        return None
    ordered = sorted(candidates, key=lambda candidate: candidate.environment)
    weights = replay_weights(ordered)
    point = rng.random() * math.fsum(weights)
    for candidate, weight in zip(ordered, weights, strict=True):
        point -= weight
        if point < 0:
            return candidate.environment
    return ordered[-1].environment


def replay_weights(candidates: Sequence[Candidate]) -> list[float]:
    """Probability of each candidate: by merit (high regret, middling win rate) and by how long it has not been played.

    A candidate without a regret has the mean merit of the others: it is neither preferred nor starved.
    """
    known = [_merit(item.regret, item.win_rate) for item in candidates if item.regret is not None]
    unknown = math.fsum(known) / len(known) if known else 1.0
    merits = [unknown if item.regret is None else _merit(item.regret, item.win_rate) for item in candidates]
    # Ranks, not distances: a long pause of the whole run must not make one candidate the only choice.
    by_age = sorted({item.last_played for item in candidates}, reverse=True)
    ages = [float(by_age.index(item.last_played) + 1) for item in candidates]
    return [
        (1 - STALENESS_WEIGHT) * merit / math.fsum(merits) + STALENESS_WEIGHT * age / math.fsum(ages)
        for merit, age in zip(merits, ages, strict=True)
    ]


def play_seeds(environment: str, round_: int, count: int) -> tuple[int, ...]:
    """``count`` distinct instance seeds in [0, 2**31 - 1] for one round of an environment, the same at every call."""
    rng = _generator("seeds", environment, round_)
    seeds: dict[int, None] = {}
    while len(seeds) < count:
        seeds[int(rng.random() * (MAX_SEED + 1))] = None
    return tuple(seeds)


def environment_id(run: str, slot: int, generation: int) -> str:
    """Identity of what a slot's turn makes: the same turn, run twice, makes the same environment."""
    return "e-" + _digest("environment", run, slot, generation).hex()[:12]


def _merit(regret: float | None, win_rate: float | None) -> float:
    share = max(0.0, min(1.0, (regret or 0.0) / REGRET_SCALE))
    level = plateau(win_rate) if win_rate is not None else 0.0
    return MERIT_FLOOR + MERIT_PLATEAU * level + MERIT_REGRET * share


def _digest(*values: str | int) -> bytes:
    return hashlib.sha256(json.dumps(values).encode()).digest()


def _generator(*values: str | int) -> random.Random:
    # Only random() is used: its sequence for a seed is the same in every version of Python.
    return random.Random(int.from_bytes(_digest(*values), "big"))
