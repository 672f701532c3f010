"""What a slot does next: rotation of skills, replay, seeds and identities."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.method.curriculum import (
    MAX_SEED,
    Candidate,
    active_skill,
    active_skills,
    choose_next,
    environment_id,
    play_seeds,
    replay_weights,
)

candidates = st.lists(
    st.builds(
        Candidate,
        environment=st.integers(0, 999).map(lambda number: f"e-{number:012x}"),
        regret=st.none() | st.floats(-2, 2),
        win_rate=st.none() | st.floats(0, 1),
        last_played=st.integers(0, 10_000),
    ),
    max_size=12,
    unique_by=lambda candidate: candidate.environment,
)


def choose(generation: int, found: list[Candidate], rate: float = 1.0, dry: bool = False) -> str | None:
    return choose_next(7, 0, generation, replay_rate=rate, replay_when_dry=0.9, dry=dry, candidates=found)


@pytest.mark.parametrize(
    ("skills", "k", "window", "expected"),
    [
        ("ABCDEF", 3, 0, "ABC"),
        ("ABCDEF", 3, 1, "DEF"),
        ("ABCDEF", 3, 2, "ABC"),
        ("ABCDEF", 3, 3, "DEF"),
        ("ABCDE", 2, 2, "EA"),
        ("ABC", 3, 5, "ABC"),
        ("ABC", 9, 1, "ABC"),
        ("ABC", 0, 1, "ABC"),
    ],
)
def test_rotation(skills: str, k: int, window: int, expected: str) -> None:
    assert "".join(active_skills(skills, k, window)) == expected


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_every_skill_has_its_turn(count: int, k: int, slots: int) -> None:
    skills = "ABCDEFGHI"[:count]
    seen = {active_skill(skills, k, slot, turn, slots) for slot in range(slots) for turn in range(count * k * 2)}
    assert seen == set(skills)


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_slot_trains_one_of_the_active_skills(slot: int, generation: int) -> None:
    assert active_skill("ABCDEF", 3, slot, generation, 8) in active_skills("ABCDEF", 3, generation)


def test_enough_slots_train_all_active_skills_at_once() -> None:
    for generation in range(6):
        assert {active_skill("ABCDEF", 3, slot, generation, 4) for slot in range(4)} == set(
            active_skills("ABCDEF", 3, generation)
        )


def test_no_skills_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(ValueError, match=r"designer\.skills"):
        active_skill((), 1, 0, 0, 1)


@given(candidates, st.integers(0, 1000), st.randoms(use_true_random=False))
def test_the_choice_is_the_same_in_any_order_of_candidates(
    found: list[Candidate], generation: int, rng: random.Random
) -> None:
    shuffled = found.copy()
    rng.shuffle(shuffled)
    choice = choose(generation, found)
    assert choice == choose(generation, shuffled)
    assert choice in {None, *(item.environment for item in found)}
    assert (choice is None) == (not found)


@given(candidates)
def test_weights_are_a_distribution_that_starves_nobody(found: list[Candidate]) -> None:
    weights = replay_weights(found)
    assert len(weights) == len(found)
    if found:
        assert sum(weights) == pytest.approx(1)
        assert min(weights) > 0


def test_how_often_a_slot_replays() -> None:
    found = [Candidate("e-000000000001", 0.2, 0.5, 1)]
    often = sum(choose(turn, found, rate=0.25) is not None for turn in range(4000)) / 4000
    dry = sum(choose(turn, found, rate=0.25, dry=True) is not None for turn in range(4000)) / 4000
    assert often == pytest.approx(0.25, abs=0.04)
    assert dry == pytest.approx(0.9, abs=0.04)
    assert choose(3, found, rate=0.0) is None


def test_what_is_preferred() -> None:
    good = Candidate("e-00000000000a", 0.3, 0.5, 10)
    easy = Candidate("e-00000000000b", 0.0, 1.0, 10)
    new = Candidate("e-00000000000c", None, None, 10)
    counts = Counter(choose(turn, [good, easy, new]) for turn in range(3000))
    assert counts["e-00000000000a"] > counts["e-00000000000c"] > counts["e-00000000000b"] > 0


def test_what_was_not_played_for_long_comes_back() -> None:
    recent = Candidate("e-00000000000a", 0.1, 0.5, 900)
    stale = Candidate("e-00000000000b", 0.1, 0.5, 3)
    first, second = replay_weights([recent, stale])
    assert second > first


@given(st.text(min_size=1, max_size=14), st.integers(0, 1_000_000), st.integers(0, 64))
def test_seeds_are_distinct_in_range_and_always_the_same(environment: str, round_: int, count: int) -> None:
    seeds = play_seeds(environment, round_, count)
    assert len(set(seeds)) == len(seeds) == count
    assert all(0 <= seed <= MAX_SEED for seed in seeds)
    assert seeds == play_seeds(environment, round_, count)
    assert seeds[: count // 2] == play_seeds(environment, round_, count // 2)


def test_rounds_and_environments_have_seeds_of_their_own() -> None:
    drawn = [play_seeds(environment, round_, 8) for environment in ("e-1", "e-2") for round_ in range(10)]
    assert len({seed for seeds in drawn for seed in seeds}) == 160


def test_values_that_must_never_change() -> None:
    """Figures of earlier runs depend on these: a replay of a log must find the same identities and seeds."""
    assert environment_id("main", 0, 0) == "e-b50fb95bd830"
    assert play_seeds("e-0123456789ab", 0, 2) == (1943723806, 312480154)
    assert (
        choose(0, [Candidate("e-000000000001", 0.2, 0.5, 1), Candidate("e-000000000002", 0.2, 0.5, 1)])
        == "e-000000000002"
    )


def test_identities_are_well_formed_and_do_not_collide_by_concatenation() -> None:
    made = {environment_id(run, slot, turn) for run in ("a", "a1") for slot in range(12) for turn in range(12)}
    assert len(made) == 2 * 12 * 12
    assert all(identity.startswith("e-") and len(identity) == 14 for identity in made)
