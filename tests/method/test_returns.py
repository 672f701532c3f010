"""Episode returns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.method.returns import episode_return

finite = st.floats(-10, 10)


@pytest.mark.parametrize(
    ("rewards", "terminated", "expected"),
    [
        ([], True, 0),
        ([0.3, 0.4], True, 0.4),
        ([0.3, 0.4], False, 0),
        ([1, 0], True, 0),
        ([0.2, 2], True, 1),
        ([-3], True, -1),
        ([1], False, 0),
        ([-0.1, -0.1, 1], True, 1),
    ],
)
def test_outcome(rewards: list[float], terminated: bool, expected: float) -> None:
    assert episode_return(rewards, terminated) == expected


def test_discounted_sums_every_step_whether_terminated_or_not() -> None:
    for terminated in (True, False):
        value = episode_return([0.1, 0.2, 0.4], terminated, kind="discounted", discount=0.5)
        assert value == pytest.approx(0.1 + 0.1 + 0.1)


@given(st.lists(finite), st.booleans(), st.sampled_from(["outcome", "discounted"]))
def test_a_return_is_always_in_range(rewards: list[float], terminated: bool, kind: str) -> None:
    assert -1 <= episode_return(rewards, terminated, kind=kind) <= 1  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        episode_return([0.0, bad, 0.0], True)
