"""Verdicts on trivial players: clear cases, luck, and pay for nothing."""

from __future__ import annotations

import pytest

from spade_daemon.settings import VetSettings
from spade_daemon.vetting.checks import not_trivial, reveals
from spade_daemon.vetting.traces import Exchange, Trace

LIMITS = VetSettings(max_trivial_rate=0.2)


def games(wins: int, of: int, pay: float = 1.0) -> list[Trace]:
    """``of`` games of three steps; the first ``wins`` end with ``pay``."""
    steps = (Exchange("a", "o", 0.0, False, False),) * 2
    ends = [Exchange("a", "o", pay if game < wins else 0.0, True, False) for game in range(of)]
    return [Trace(game, "go", (*steps, end)) for game, end in enumerate(ends)]


@pytest.mark.parametrize(
    ("wins", "of", "passed"),
    [(0, 5, True), (2, 5, True), (4, 5, False), (5, 5, False), (6, 30, True), (12, 30, False)],
)
def test_a_player_is_caught_by_what_luck_does_not_explain(wins: int, of: int, passed: bool) -> None:
    finding = not_trivial({"constant 0": games(wins, of), "random": games(0, 60)}, LIMITS)
    assert finding.passed is passed
    assert finding.numbers["constant 0"] == wins / of


def test_small_pay_for_everyone_is_caught() -> None:
    assert not not_trivial({"empty": games(5, 5, 0.3), "random": games(60, 60, 0.3)}, LIMITS).passed
    assert not_trivial({"empty": games(5, 5, 0.1), "random": games(60, 60, 0.1)}, LIMITS).passed


def test_nothing_may_be_earned_when_the_limit_is_zero() -> None:
    assert not_trivial({"random": games(0, 9)}, VetSettings(max_trivial_rate=0)).passed
    assert not not_trivial({"random": games(1, 9)}, VetSettings(max_trivial_rate=0)).passed


def test_a_loss_is_no_pay_and_a_crash_is_no_pass() -> None:
    assert not_trivial({"empty": games(5, 5, -1.0)}, LIMITS).passed
    assert "crash" in not_trivial({"empty": [Trace(1, "go", fault="crash")]}, LIMITS).detail


def answered(first: str, reply: str, action: str = "look") -> Trace:
    return Trace(1, first, (Exchange(action, reply, 0.0, False, False),))


def test_acting_reveals_what_is_not_in_the_first_observation() -> None:
    assert reveals([answered("find it", "warm"), answered("find it", "cold")])
    assert not reveals([answered("find it", "wrong"), answered("find it", "wrong")])
    assert not reveals([answered("2 times 3", "not 2 times 3"), answered("4 times 5", "not 4 times 5")])
    assert not reveals([answered("find it", "warm", "look"), answered("find it", "cold", "dig")])
