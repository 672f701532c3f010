"""Designer rewards against the published vectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.words import Fault, VoidReason
from spade_daemon.method.regret import Play, Regret, paired_regret
from spade_daemon.method.rewards import (
    RewardName,
    designer_reward,
    invalid_design_reward,
    plateau,
    reward_components,
    variance_bonus,
)

NAMES: tuple[RewardName, ...] = ("regret", "blend", "solve_rate")


def a_round(win_rate: float, regret: float) -> Regret:
    return Regret(None, regret, 0.1, 8, win_rate, win_rate + regret, win_rate, agent_signal=True)


@pytest.mark.parametrize(
    ("win_rate", "value"),
    [
        (0, 0),
        (0.15, 0),
        (0.2, 0.2),
        (0.3, 0.6),
        (0.4, 1),
        (0.5, 1),
        (0.6, 1),
        (0.7, 0.6),
        (0.75, 0.4),
        (0.85, 0),
        (1, 0),
    ],
)
def test_plateau(win_rate: float, value: float) -> None:
    assert plateau(win_rate) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    ("win_rate", "value"), [(0.1, 0.5), (0.15, 0.75), (0.2, 1), (0.3, 1), (0.4, 1), (0.5, 0.5), (0.6, 0)]
)
def test_plateau_of_the_second_phase(win_rate: float, value: float) -> None:
    assert plateau(win_rate, 0.2, 0.4, 0.2) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("wins", "value"), [(0, 0.0439369), (1, 0.3720342), (2, 0.8225776), (3, 0.9878672), (4, 1)])
def test_variance_bonus_of_eight_plays(wins: int, value: float) -> None:
    assert variance_bonus(wins / 8) == pytest.approx(value, abs=1e-7)
    assert variance_bonus(1 - wins / 8) == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize(
    ("win_rate", "regret", "blend", "solve_rate"),
    [
        (0.4375, 0.375, 1.0, 1.0),
        (1, 0, 0, 0),
        (0, 0.0625, 0.1666667, 0),
        (0.5, -0.0625, 0.6, 1),
        (0.1875, 0.0625, 0.2566667, 0.15),
    ],
)
def test_blend_and_solve_rate(win_rate: float, regret: float, blend: float, solve_rate: float) -> None:
    components = reward_components(a_round(win_rate, regret))
    assert components is not None
    assert components.blend == pytest.approx(blend, abs=1e-6)
    assert components.solve_rate == pytest.approx(solve_rate, abs=1e-6)


@pytest.mark.parametrize(("regret", "expected"), [(0.375, 0.375), (-0.25, 0.0), (0.5, 0.5)])
def test_regret_has_a_floor(regret: float, expected: float) -> None:
    assert designer_reward("regret", a_round(0.5, regret), -0.5) == expected


def test_every_component_is_recorded() -> None:
    components = reward_components(a_round(0.5, 0.3))
    assert components is not None
    recorded = components.as_dict()
    assert set(NAMES) < set(recorded)
    for name in NAMES:
        assert recorded[name] == designer_reward(name, a_round(0.5, 0.3), -0.5)


@pytest.mark.parametrize("name", NAMES)
def test_a_faulty_environment_never_earns(name: RewardName) -> None:
    plain = [Play(0, 0.0), Play(1, 1.0)]
    hinted = [Play(0, 1.0), Play(1, None, Fault.ENVIRONMENT)]
    round_ = paired_regret(plain, hinted)
    assert reward_components(round_) is None
    assert designer_reward(name, round_, -0.5) == -0.5


@pytest.mark.parametrize("name", NAMES)
def test_infrastructure_faults_say_nothing_about_the_design(name: RewardName) -> None:
    void = Regret(VoidReason.INFRASTRUCTURE_FAULT, None, None, 0, None, None, None, agent_signal=False)
    assert designer_reward(name, void, -0.5) is None
    assert designer_reward(name, paired_regret([Play(0, 1.0)], []), -0.5) is None


@given(st.floats(0, 1), st.floats(-2, 2), st.sampled_from(NAMES))
def test_a_valid_design_is_never_below_zero_and_so_never_below_an_invalid_one(
    win_rate: float, regret: float, name: RewardName
) -> None:
    reward = designer_reward(name, a_round(win_rate, regret), -0.5)
    assert reward is not None
    assert 0 <= reward <= 2


def test_a_refused_design_earns_more_the_further_it_came() -> None:
    assert invalid_design_reward(-0.5, 0.0, 0.9) == -0.5
    assert invalid_design_reward(-0.5, 0.5, 0.0) == -0.5
    assert invalid_design_reward(-0.5, 0.5, 0.4) == pytest.approx(-0.4)
    assert invalid_design_reward(-0.5, 1.0, 1.0) == 0.0
