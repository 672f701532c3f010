"""Paired regret: figures, pairing, and who owns a void round."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.words import Fault, VoidReason
from spade_daemon.method.regret import Play, has_signal, paired_regret

returns = st.floats(-1, 1)


def arm(values: list[float | None], fault: Fault | None = None) -> list[Play]:
    return [Play(seed, value, fault if value is None else None) for seed, value in enumerate(values)]


def test_figures_of_a_round() -> None:
    result = paired_regret(arm([0.0, 1.0, 0.0, 0.0]), arm([1.0, 1.0, 0.0, 1.0]))
    gaps = [1.0, 0.0, 0.0, 1.0]
    assert result.void is None
    assert (result.regret, result.pairs, result.plain_mean, result.hinted_mean) == (0.5, 4, 0.25, 0.75)
    assert result.standard_error == pytest.approx(statistics.stdev(gaps) / 2)
    assert result.win_rate == 0.25
    assert result.agent_signal


def test_one_pair_has_no_standard_error() -> None:
    result = paired_regret(arm([0.0]), arm([1.0]))
    assert (result.regret, result.standard_error, result.agent_signal) == (1.0, None, False)


def test_win_rate_counts_returns_above_zero_only() -> None:
    assert paired_regret(arm([-1.0, 0.0, 0.1, 1.0]), []).win_rate == 0.5


def test_without_a_hinted_arm_there_is_no_regret_but_a_signal() -> None:
    result = paired_regret(arm([0.0, 1.0]), [])
    assert (result.void, result.regret, result.pairs, result.agent_signal) == (None, None, 0, True)


@given(st.lists(st.tuples(returns, returns), min_size=2, max_size=20))
def test_regret_is_antisymmetric_and_the_difference_of_the_means(pairs: list[tuple[float, float]]) -> None:
    plain, hinted = arm([low for low, _ in pairs]), arm([high for _, high in pairs])
    there, back = paired_regret(plain, hinted), paired_regret(hinted, plain)
    assert there.regret is not None and back.regret is not None
    assert there.plain_mean is not None and there.hinted_mean is not None
    assert there.regret == pytest.approx(-back.regret, abs=1e-12)
    assert there.regret == pytest.approx(there.hinted_mean - there.plain_mean, abs=1e-12)
    assert there.standard_error == pytest.approx(back.standard_error, abs=1e-12)


@given(st.lists(returns, min_size=1, max_size=8), st.data())
def test_one_fault_voids_the_whole_round(values: list[float], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(values) - 1))
    fault = data.draw(st.sampled_from([Fault.ENVIRONMENT, Fault.INFRASTRUCTURE]))
    arms = [arm(list(values)), arm(list(values))]
    broken = data.draw(st.integers(0, 1))
    arms[broken][index] = Play(index, None, fault)
    result = paired_regret(*arms)
    expected = VoidReason.ENVIRONMENT_FAULT if fault is Fault.ENVIRONMENT else VoidReason.INFRASTRUCTURE_FAULT
    assert result.void is expected
    assert (result.regret, result.standard_error, result.win_rate, result.pairs) == (None, None, None, 0)
    assert not result.agent_signal


def test_the_environments_fault_comes_before_the_infrastructures() -> None:
    plain = [Play(0, None, Fault.INFRASTRUCTURE), Play(1, 1.0)]
    hinted = [Play(0, 1.0), Play(1, None, Fault.ENVIRONMENT)]
    assert paired_regret(plain, hinted).void is VoidReason.ENVIRONMENT_FAULT


def test_a_missing_return_without_a_named_fault_is_infrastructure() -> None:
    assert paired_regret(arm([None, 1.0]), []).void is VoidReason.INFRASTRUCTURE_FAULT


def test_an_agents_own_fault_counts_as_an_ordinary_return() -> None:
    result = paired_regret([Play(0, 0.0, Fault.AGENT), Play(1, 1.0)], [Play(0, 1.0), Play(1, 1.0)])
    assert (result.void, result.regret) == (None, 0.5)


@pytest.mark.parametrize(
    ("plain", "hinted"),
    [([], []), ([0, 0], []), ([0, 1], [1, 0]), ([0, 1], [0]), ([0], [0, 1])],
)
def test_arms_that_do_not_align_are_refused(plain: list[int], hinted: list[int]) -> None:
    with pytest.raises(ValueError, match="round"):
        paired_regret([Play(seed, 0.0) for seed in plain], [Play(seed, 0.0) for seed in hinted])


def test_signal_is_exact_inequality() -> None:
    assert not has_signal([0.1] * 5)
    assert has_signal([0.1, 0.1 + 2**-50])
    assert not has_signal([])
