"""Losses against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spade_daemon.trainer.losses import (
    LOSSES,
    LossName,
    RoleSums,
    cispo,
    dppo,
    effective_sample_size,
    k3,
    ppo,
    role_loss,
)


def at(*values: float) -> Tensor:
    return torch.tensor(values)


def gradient(name: LossName, policy: float, sampler: float, advantage: float) -> float:
    logprob = at(policy).requires_grad_()
    LOSSES[name](logprob, at(sampler), at(advantage)).loss.sum().backward()
    assert logprob.grad is not None
    return float(logprob.grad)


@pytest.mark.parametrize(
    ("log_r", "value"), [(0.1, 0.005171), (-0.1, 0.004837), (-1.0, 0.367879), (1.0, 0.718282), (0.0, 0.0)]
)
def test_k3(log_r: float, value: float) -> None:
    assert float(k3(at(log_r))) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value"), [(1.5, 1.0, -1.28), (0.5, 1.0, -0.5), (1.5, -1.0, 1.5), (0.5, -1.0, 0.8)]
)
def test_ppo_clip(ratio: float, advantage: float, value: float) -> None:
    old = at(-2.0)
    result = ppo(old + math.log(ratio), old, at(advantage), old=old)
    assert float(result.loss) == pytest.approx(value, abs=1e-6)
    assert bool(result.high) == (ratio > 1 and advantage > 0)
    assert bool(result.low) == (ratio < 1 and advantage < 0)


@pytest.mark.parametrize(
    ("log_weight", "weight"), [(0.0, 1.0), (0.5, 1.648721), (0.7, 2.0), (3.0, 2.0), (-1.0, 0.367879), (-3.0, 0.049787)]
)
def test_ppo_truncates_the_importance_weight(log_weight: float, weight: float) -> None:
    policy = at(-4.0 + log_weight).requires_grad_()
    result = ppo(policy, at(-4.0), at(1.0))
    result.loss.sum().backward()
    assert float(result.loss.detach()) == pytest.approx(-weight, abs=1e-6)
    assert policy.grad is not None
    assert float(policy.grad) == pytest.approx(-weight, abs=1e-6)
    assert bool(result.high) == (log_weight > math.log(2))


@pytest.mark.parametrize(
    ("policy", "sampler", "advantage", "side"),
    [
        (0.71, 0.5, 1.0, "high"),
        (0.69, 0.5, 1.0, None),
        (0.71, 0.5, -1.0, None),
        (0.29, 0.5, -1.0, "low"),
        (0.31, 0.5, -1.0, None),
        (0.29, 0.5, 1.0, None),
        (0.10, 0.001, 1.0, None),
    ],
)
def test_dppo_bounds_probabilities(policy: float, sampler: float, advantage: float, side: str | None) -> None:
    result = dppo(at(math.log(policy)), at(math.log(sampler)), at(advantage))
    assert (bool(result.low), bool(result.high)) == (side == "low", side == "high")
    ratio = policy / sampler
    kept = 0.0 if side else -advantage * ratio
    assert float(result.loss) == pytest.approx(kept + 1e-3 * math.log(ratio) ** 2, rel=1e-4)


def test_dppo_leaves_a_dropped_token_its_quadratic_pull() -> None:
    log_r = math.log(0.8 / 0.5)
    assert gradient("dppo", math.log(0.8), math.log(0.5), 1.0) == pytest.approx(2e-3 * log_r, rel=1e-4)


def test_cispo_keeps_a_gradient_beyond_the_bound() -> None:
    assert gradient("cispo", -1.0, -1.0 - math.log(4), 2.0) == pytest.approx(-8.0, rel=1e-5)
    assert gradient("cispo", -1.0, -1.0 - math.log(9), 2.0) == pytest.approx(-10.0, rel=1e-5)
    assert bool(cispo(at(-1.0), at(-1.0 - math.log(9)), at(1.0)).high)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_on_policy_every_loss_has_the_policy_gradient(name: LossName) -> None:
    assert gradient(name, -1.5, -1.5, 0.7) == pytest.approx(-0.7, rel=1e-5)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("gap", [-300.0, 300.0])
def test_a_wild_ratio_stays_finite(name: LossName, gap: float) -> None:
    assert math.isfinite(gradient(name, -400.0, -400.0 + gap, -1.0))


def test_effective_sample_size() -> None:
    assert effective_sample_size(4.0, 4.0, 4) == 1.0
    assert effective_sample_size(1.0, 1.0, 4) == 0.25
    assert effective_sample_size(6.0, 14.0, 3) == pytest.approx(36 / 42)
    assert effective_sample_size(0.0, 0.0, 0) == 1.0


def test_role_loss_is_a_weighted_mean_over_all_tokens_of_the_role() -> None:
    policy = at(-1.0, -2.0).requires_grad_()
    loss, sums = role_loss("ppo", policy, at(-1.0, -2.0), at(1.0, 3.0), at(0.5, 0.7), denominator=8, weight=2.0)
    assert float(loss.detach()) == pytest.approx(-1.0)
    metrics = sums.metrics("agent")
    assert metrics["agent_tokens"] == 2
    assert metrics["agent_loss"] == pytest.approx(-2.0)
    assert metrics["agent_entropy"] == pytest.approx(0.6)
    assert metrics["agent_ess"] == 1.0
    assert metrics["agent_k3_max"] == 0.0


TOKEN = st.tuples(st.floats(-4, -0.1), st.floats(-4, -0.1), st.floats(-2, 2), st.floats(0, 3))


@given(st.lists(TOKEN, min_size=1, max_size=12), st.integers(0, 12), st.sampled_from(sorted(LOSSES)))
def test_micro_batches_add_up(tokens: list[tuple[float, float, float, float]], cut: int, name: LossName) -> None:
    """Loss, gradient and metrics do not depend on where a batch is cut."""

    def run(parts: list[list[tuple[float, float, float, float]]]) -> tuple[float, list[float], dict[str, float]]:
        total, gradients, sums = 0.0, [], RoleSums()
        for part in (part for part in parts if part):
            policy, sampler, advantages, entropy = (at(*column) for column in zip(*part, strict=True))
            policy.requires_grad_()
            loss, more = role_loss(name, policy, sampler, advantages, entropy, denominator=len(tokens))
            loss.backward()
            total, sums = total + float(loss.detach()), sums + more
            assert policy.grad is not None
            gradients += policy.grad.tolist()
        return total, gradients, sums.metrics("agent")

    whole, split = run([tokens]), run([tokens[:cut], tokens[cut:]])
    assert split[0] == pytest.approx(whole[0], rel=1e-4, abs=1e-5)
    assert split[1] == pytest.approx(whole[1], rel=1e-4, abs=1e-5)
    assert split[2] == pytest.approx(whole[2], rel=1e-4, abs=1e-5)


def test_a_role_without_tokens_has_no_metrics() -> None:
    assert RoleSums().metrics("designer") == {}
