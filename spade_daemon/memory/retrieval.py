"""Which remembered environments a designer sees. Pure: the caller brings the entries and the random generator."""

from __future__ import annotations

import random
from collections.abc import Sequence

from schemas.words import Origin
from spade_daemon.memory.entry import MemoryEntry
from spade_daemon.method.prompts import Reference, Verdict

GOOD_WIN_RATE = (0.15, 0.85)
"""Win rates of a good example, both ends included: where the plateau of the reward is above 0."""
TOO_HARD, TOO_EASY = 0.1, 0.9
POOL_FACTOR, POOL_FLOOR = 3, 10
"""Positives are drawn from the best ``max(POOL_FACTOR * n, POOL_FLOOR)``: always the very best would be imitated."""


def choose_references(
    entries: Sequence[MemoryEntry],
    *,
    setting: str,
    skill: str,
    positives: int,
    negatives: int,
    rng: random.Random,
) -> list[tuple[str, Reference]]:
    """Choose the references of one prompt, good ones first.

    Args:
        entries: everything remembered, in any order.
        setting: only environments of this setting are chosen.
        skill: the skill that the design is to train.
        positives: how many good examples at most.
        negatives: how many bad ones at most.
        rng: decides; the same generator state gives the same choice.

    Returns:
        (environment id, reference) of each.
    """
    own = sorted((entry for entry in entries if entry.setting == setting), key=lambda entry: (entry.born, entry.id))
    good = choose_positives(own, skill, positives, rng)
    chosen = {entry.id for entry in good}
    bad = choose_negatives([entry for entry in own if entry.id not in chosen], skill, negatives, rng)
    return [(entry.id, _reference(entry, None)) for entry in good] + [
        (entry.id, _reference(entry, verdict(entry.win_rate))) for entry in bad
    ]


def eligible(entries: Sequence[MemoryEntry], skill: str) -> list[MemoryEntry]:
    """Good examples of a skill: of the right difficulty, highest regret first."""
    low, high = GOOD_WIN_RATE
    found = [
        (entry.regret, entry)
        for entry in entries
        if entry.skill == skill
        and entry.regret is not None
        and entry.win_rate is not None
        and low <= entry.win_rate <= high
    ]
    return [entry for _, entry in sorted(found, key=lambda pair: -pair[0])]


def choose_positives(entries: Sequence[MemoryEntry], skill: str, count: int, rng: random.Random) -> list[MemoryEntry]:
    """``count`` good examples, or fewer: uniform among the best, then seeds of the skill, then any seed."""
    pool = eligible(entries, skill)[: max(POOL_FACTOR * count, POOL_FLOOR)]
    chosen = rng.sample(pool, min(count, len(pool)))
    for same_skill in (True, False):
        taken = {entry.id for entry in chosen}
        seeds = [
            entry
            for entry in entries
            if entry.origin == Origin.SEED and entry.id not in taken and (entry.skill == skill) is same_skill
        ]
        chosen += rng.sample(seeds, min(count - len(chosen), len(seeds)))
    return chosen


def choose_negatives(entries: Sequence[MemoryEntry], skill: str, count: int, rng: random.Random) -> list[MemoryEntry]:
    """``count`` environments of the skill that were too easy or too hard, or fewer."""
    pool = [entry for entry in entries if entry.skill == skill and verdict(entry.win_rate) is not None]
    return rng.sample(pool, min(count, len(pool)))


def verdict(win_rate: float | None) -> Verdict | None:
    """Why an environment of this win rate is a bad example; ``None`` when it is not, or has not been played."""
    if win_rate is None or TOO_HARD <= win_rate <= TOO_EASY:
        return None
    return "too hard" if win_rate < TOO_HARD else "too easy"


def _reference(entry: MemoryEntry, why: Verdict | None) -> Reference:
    return Reference(entry.code, entry.description, entry.win_rate, entry.regret, why)
