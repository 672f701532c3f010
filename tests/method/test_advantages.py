"""Advantages of plays and of designs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.method.advantages import agent_advantages, designer_advantages, designer_scale

groups = st.lists(st.floats(-1, 1), min_size=1, max_size=16)


@pytest.mark.parametrize(
    ("wins", "won", "lost"),
    [(1, 2.645751, -0.377964), (2, 1.732051, -0.577350), (4, 1.0, -1.0), (7, 0.377964, -2.645751)],
)
def test_zscore_of_eight_plays(wins: int, won: float, lost: float) -> None:
    found = agent_advantages([1.0] * wins + [0.0] * (8 - wins), "zscore")
    assert found == pytest.approx([won] * wins + [lost] * (8 - wins), abs=1e-6)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([-1, 0, 1, 1], [-1.507557, -0.301511, 0.904534, 0.904534]),
        ([0.5, 1, 0, 0], [0.301511, 1.507557, -0.904534, -0.904534]),
    ],
)
def test_zscore_of_graded_returns(returns: list[float], expected: list[float]) -> None:
    assert agent_advantages(returns, "zscore") == pytest.approx(expected, abs=1e-6)


def test_mean_only_centres() -> None:
    assert agent_advantages([1, 0, 0, 0]) == (0.75, -0.25, -0.25, -0.25)


@pytest.mark.parametrize("kind", ["mean", "zscore"])
@pytest.mark.parametrize("returns", [[], [1.0], [0.1] * 3, [0.7] * 7])
def test_equal_returns_carry_no_signal(returns: list[float], kind: str) -> None:
    assert agent_advantages(returns, kind) is None  # type: ignore[arg-type]


@given(groups, st.sampled_from(["mean", "zscore"]))
def test_a_group_with_a_signal_keeps_all_its_members_and_sums_to_zero(returns: list[float], kind: str) -> None:
    found = agent_advantages(returns, kind)  # type: ignore[arg-type]
    if len(set(returns)) < 2:
        assert found is None
        return
    assert found is not None
    assert len(found) == len(returns)
    assert math.fsum(found) == pytest.approx(0, abs=1e-6)
    assert all(math.isfinite(value) for value in found)


def test_designs_are_compared_within_their_skill() -> None:
    designs = [("logic", 0.5), ("logic", 0.0), ("logic", -0.5), ("logic", 0.0), ("maths", 0.125), ("maths", 0.375)]
    assert designer_advantages(designs) == (0.5, 0.0, -0.5, 0.0, -0.125, 0.125)


def test_blend_vector_scaled_by_the_recipe() -> None:
    raw = [1.0, 0.0, 1 / 6, 0.6, 0.15 * 0.6 + 0.4 * 0.0625 / 0.15, 0.4]
    scale = designer_scale(24, 192, 4)
    found = [value * scale for value in designer_advantages([("s", reward) for reward in raw])]
    expected = [19.075556, -12.924444, -7.591111, 6.275556, -4.711111, -0.124444]
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_single_design_of_a_skill_has_no_signal() -> None:
    assert designer_advantages([("a", 0.9), ("b", 0.1), ("b", 0.3)])[0] == 0.0


@given(st.floats(-1, 1), st.integers(1, 12))
def test_equal_rewards_give_exactly_zero(reward: float, count: int) -> None:
    assert designer_advantages([("a", reward)] * count) == (0.0,) * count


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1, 1)), max_size=24))
def test_designer_advantages_sum_to_zero_within_each_skill(designs: list[tuple[str, float]]) -> None:
    found = designer_advantages(designs)
    assert len(found) == len(designs)
    for skill in "abc":
        own = [value for value, (name, _) in zip(found, designs, strict=True) if name == skill]
        assert math.fsum(own) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("designs", "plays", "window", "scale"),
    [
        (24, 192, 4, 32),
        (20, 192, 4, 38.4),
        (24, 192, 8, 50),
        (16, 256, 32, 50),
        (2, 8, 3, 12),
        (0, 8, 4, 1),
        (8, 0, 4, 1),
    ],
)
def test_scale(designs: int, plays: int, window: int, scale: float) -> None:
    assert designer_scale(designs, plays, window) == pytest.approx(scale)
