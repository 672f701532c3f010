"""Token-level trust regions against the sampler's log-probabilities: pure functions over flat tensors.

Notation: log pi is the policy that is trained (with gradient), log mu the sampler that wrote the token, A the
advantage, ``r = exp(log pi - log mu)``. All tensors have shape [N], one entry a trained token, float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

LossName = Literal["dppo", "ppo", "cispo"]

DPPO_HIGH = 0.2
"""Largest rise of a token's probability that a positive advantage still pushes."""
DPPO_LOW = 0.2
DPPO_QUADRATIC = 1e-3
PPO_HIGH = 0.28
PPO_LOW = 0.2
TRUNCATION = 2.0
"""Upper bound of the importance weight between sampler and trainer (TIS)."""
CISPO_HIGH = 5.0
MAX_LOG_RATIO = 20.0
"""Beyond it the ratio is held: exp overflows float32 at 88, and its square at 44."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """Loss of each token, and which tokens the trust region stopped or cut on either side."""

    loss: Tensor
    low: Tensor
    high: Tensor


def log_ratio(policy: Tensor, sampler: Tensor) -> Tensor:
    """``log pi - log mu``, held within a range whose exponential is finite."""
    return (policy - sampler).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def k3(log_r: Tensor) -> Tensor:
    """``r - 1 - log r``: an estimate of KL(mu || pi) on the sampler's tokens that is never negative."""
    return torch.expm1(log_r) - log_r


def effective_sample_size(ratio_sum: float, ratio_square_sum: float, tokens: int) -> float:
    """``(sum r)^2 / (n sum r^2)``: 1 when all weights are equal, 1/n when one token outweighs all."""
    return ratio_sum**2 / (tokens * ratio_square_sum) if tokens and ratio_square_sum else 1.0


def dppo(policy: Tensor, sampler: Tensor, advantages: Tensor) -> TokenLoss:
    """Divergence PPO with total variation: ``-keep A r + tau (log r)^2``.

    A token is dropped when its probability already moved in the direction of its advantage by more than the bound.
    The bound is on probabilities, not on ratios, so that rare tokens are not cut for a change that hardly matters.
    """
    log_r = log_ratio(policy, sampler)
    moved = (policy.exp() - sampler.exp()).detach()
    high = (advantages > 0) & (moved > DPPO_HIGH)
    low = (advantages < 0) & (moved < -DPPO_LOW)
    keep = ~(high | low)
    return TokenLoss(DPPO_QUADRATIC * log_r.square() - keep * advantages * log_r.exp(), low, high)


def ppo(policy: Tensor, sampler: Tensor, advantages: Tensor, old: Tensor | None = None) -> TokenLoss:
    """PPO clip against ``old``, times the truncated importance weight of ``old`` against the sampler.

    Args:
        old: log-probabilities by the weights before the update; by default those of ``policy`` itself, which is what
            they are when a batch has one optimizer step. The clip then never acts and the truncation alone corrects.
    """
    before = policy.detach() if old is None else old
    weight = log_ratio(before, sampler).exp()
    ratio = log_ratio(policy, before).exp()
    clipped = ratio.clamp(1 - PPO_LOW, 1 + PPO_HIGH)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    high = ((advantages > 0) & (ratio > 1 + PPO_HIGH)) | (weight > TRUNCATION)
    low = (advantages < 0) & (ratio < 1 - PPO_LOW)
    return TokenLoss(-weight.clamp(max=TRUNCATION) * gain, low, high.detach())


def cispo(policy: Tensor, sampler: Tensor, advantages: Tensor) -> TokenLoss:
    """The ratio, cut from above and detached, as a weight on ``A log pi``: every token keeps a gradient."""
    ratio = log_ratio(policy, sampler).exp().detach()
    loss = -ratio.clamp(max=CISPO_HIGH) * advantages * policy
    return TokenLoss(loss, torch.zeros_like(ratio, dtype=torch.bool), ratio > CISPO_HIGH)


LOSSES: dict[LossName, Callable[[Tensor, Tensor, Tensor], TokenLoss]] = {"dppo": dppo, "ppo": ppo, "cispo": cispo}


@dataclass(frozen=True, slots=True)
class RoleSums:
    """Sums over trained tokens of one role: micro-batches add up, means come last."""

    tokens: int = 0
    loss: float = 0.0
    k3: float = 0.0
    k3_max: float = 0.0
    ratio: float = 0.0
    ratio_square: float = 0.0
    low: int = 0
    high: int = 0
    entropy: float = 0.0

    def __add__(self, other: RoleSums) -> RoleSums:
        return RoleSums(
            tokens=self.tokens + other.tokens,
            loss=self.loss + other.loss,
            k3=self.k3 + other.k3,
            k3_max=max(self.k3_max, other.k3_max),
            ratio=self.ratio + other.ratio,
            ratio_square=self.ratio_square + other.ratio_square,
            low=self.low + other.low,
            high=self.high + other.high,
            entropy=self.entropy + other.entropy,
        )

    def metrics(self, role: str) -> dict[str, float]:
        """Means over the role's tokens, named ``<role>_<metric>``; empty without a token."""
        if not self.tokens:
            return {}
        values = {
            "tokens": float(self.tokens),
            "loss": self.loss / self.tokens,
            "k3_mean": self.k3 / self.tokens,
            "k3_max": self.k3_max,
            "ess": effective_sample_size(self.ratio, self.ratio_square, self.tokens),
            "masked_low": self.low / self.tokens,
            "masked_high": self.high / self.tokens,
            "entropy": self.entropy / self.tokens,
        }
        return {f"{role}_{name}": value for name, value in values.items()}


def role_loss(
    name: LossName,
    policy: Tensor,
    sampler: Tensor,
    advantages: Tensor,
    entropy: Tensor,
    *,
    denominator: int,
    weight: float = 1.0,
) -> tuple[Tensor, RoleSums]:
    """Share of one micro-batch in the loss of one role.

    Args:
        denominator: trained tokens of the role in the whole batch, so that the micro-batches add up to a token mean
            and neither long episodes nor the other role change a token's weight.
        weight: weight of the role.

    Returns:
        A scalar to differentiate, and the sums for the metrics.
    """
    tokens = LOSSES[name](policy, sampler, advantages)
    with torch.no_grad():
        log_r = log_ratio(policy, sampler)
        ratio = log_r.exp().double()
        mismatch = k3(log_r).double()
        sums = RoleSums(
            tokens=policy.numel(),
            loss=float(tokens.loss.double().sum()),
            k3=float(mismatch.sum()),
            k3_max=float(mismatch.max()) if policy.numel() else 0.0,
            ratio=float(ratio.sum()),
            ratio_square=float(ratio.square().sum()),
            low=int(tokens.low.sum()),
            high=int(tokens.high.sum()),
            entropy=float(entropy.double().sum()),
        )
    return tokens.loss.sum() * (weight / denominator), sums
