"""Which environments a designer sees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spade_daemon.memory.entry import MemoryEntry
from spade_daemon.memory.retrieval import choose_negatives, choose_positives, choose_references, eligible, verdict

MakeEntry = Callable[..., MemoryEntry]

RECORDS = [
    (0.5, 0.30), (0.10, 0.90), (0.15, 0.05), (0.85, 0.45), (0.90, 0.7), (0.95, 0.1), (0.05, 0.0), (0.4, 0.30),
    (0.6, -0.2), (0.7, 0.6), (0.3, 0.25), (0.25, 0.2), (0.45, 0.15), (0.55, 0.12), (0.65, 0.11), (0.35, 0.1),
]  # fmt: skip
"""(win rate, regret) of g0 to g15."""


@pytest.fixture
def records(make_entry: MakeEntry) -> list[MemoryEntry]:
    return [
        make_entry(number, name=f"g{number}", skill="logic", win_rate=win_rate, regret=regret)
        for number, (win_rate, regret) in enumerate(RECORDS)
    ]


def names(entries: list[MemoryEntry]) -> list[str]:
    return [entry.name for entry in entries]


def test_eligible_in_order_of_regret(records: list[MemoryEntry]) -> None:
    assert " ".join(names(eligible(records, "logic"))) == "g9 g3 g0 g7 g10 g11 g12 g13 g14 g15 g2 g8"


def test_first_draws_of_a_seeded_generator(records: list[MemoryEntry]) -> None:
    rng = random.Random(0)
    drawn = [set(names(choose_positives(records, "logic", 2, rng))) for _ in range(4)]
    assert drawn == [{"g12", "g15"}, {"g9", "g10"}, {"g14", "g13"}, {"g12", "g10"}]


def test_uniform_among_the_best_ten(records: list[MemoryEntry]) -> None:
    rng = random.Random(1)
    counts = Counter(name for _ in range(4000) for name in names(choose_positives(records, "logic", 2, rng)))
    assert set(counts) == set(names(eligible(records, "logic")[:10]))
    assert all(count / 4000 == pytest.approx(0.2, abs=0.04) for count in counts.values())


def test_negatives_are_beyond_the_bounds(records: list[MemoryEntry]) -> None:
    rng = random.Random(2)
    assert {name for _ in range(100) for name in names(choose_negatives(records, "logic", 1, rng))} == {"g5", "g6"}


@pytest.mark.parametrize(
    ("win_rate", "expected"),
    [(None, None), (0.0, "too hard"), (0.099, "too hard"), (0.1, None), (0.5, None), (0.9, None), (0.91, "too easy")],
)
def test_verdict(win_rate: float | None, expected: str | None) -> None:
    assert verdict(win_rate) == expected


def test_an_unknown_skill_has_no_references(records: list[MemoryEntry]) -> None:
    assert choose(records, skill="cooking") == []


def test_seeds_fill_in_their_own_skill_first(make_entry: MakeEntry) -> None:
    unplayed: dict[str, Any] = {"origin": "seed", "win_rate": None, "regret": None}
    entries = [
        make_entry(0, skill="logic", **unplayed),
        make_entry(1, skill="maths", **unplayed),
        make_entry(2, skill="logic", setting="tool_use", **unplayed),
        make_entry(3, skill="logic", win_rate=None, regret=None),
    ]
    for seed in range(20):
        assert [identity for identity, _ in choose(entries, seed=seed, positives=1)] == [entries[0].id]
        assert [identity for identity, _ in choose(entries, seed=seed, positives=4)] == [entries[0].id, entries[1].id]


def test_a_bad_example_comes_with_its_reason_and_is_never_a_good_one_too(make_entry: MakeEntry) -> None:
    easy = make_entry(0, origin="seed", win_rate=1.0, skill="logic")
    hard = make_entry(1, win_rate=0.0, skill="logic", description="Guess.")
    ((good, first), (bad, second)) = choose([easy, hard], positives=1, negatives=2)
    assert (good, first.verdict) == (easy.id, None)
    assert (bad, second.verdict, second.description, second.win_rate) == (hard.id, "too hard", "Guess.", 0.0)


def choose(
    entries: list[MemoryEntry], *, skill: str = "logic", seed: int = 0, positives: int = 2, negatives: int = 1
) -> list[tuple[str, Any]]:
    return choose_references(
        entries, setting="games", skill=skill, positives=positives, negatives=negatives, rng=random.Random(seed)
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 5), st.randoms(use_true_random=False))
def test_the_choice_depends_on_the_seed_and_not_on_the_order(
    records: list[MemoryEntry], seed: int, positives: int, negatives: int, shuffler: random.Random
) -> None:
    shuffled = records.copy()
    shuffler.shuffle(shuffled)
    one = choose(records, seed=seed, positives=positives, negatives=negatives)
    assert one == choose(shuffled, seed=seed, positives=positives, negatives=negatives)
    identities = [identity for identity, _ in one]
    assert len(set(identities)) == len(identities)
    assert sum(reference.verdict is None for _, reference in one) == positives
    assert sum(reference.verdict is not None for _, reference in one) == min(negatives, 2)
