"""Log-probabilities of trained tokens without the logits of a whole sequence.

A vocabulary of 152,000 words times a few thousand positions is gigabytes. Only trained positions go through the
language model head, a chunk at a time, and a chunk's logits are gone before the next one's are made, also for the
backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK = 128
"""Positions in a chunk: 80 MB of float32 logits at 152,000 words."""


def token_logprobs(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperatures: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``targets``, and the entropy of the distributions that they are from.

    Args:
        head: the output layer, hidden size to vocabulary.
        hidden: [N, D], the last hidden state where each target is predicted.
        targets: [N] int64.
        temperatures: [N] float32, by which the logits are divided.
        chunk: positions at a time.

    Returns:
        ``(logprobs, entropy)``, both [N] float32; only ``logprobs`` has a gradient.
    """
    weight = head.weight
    assert isinstance(weight, Tensor)
    frozen = not weight.requires_grad and weight.numel() > 0 and getattr(head, "bias", None) is None
    if torch.is_grad_enabled() and frozen and hidden.requires_grad:
        logprobs, entropy = _FrozenHead.apply(hidden, weight, targets, temperatures, chunk)  # type: ignore[no-untyped-call]
        return logprobs, entropy
    parts = [
        _chunk_with_recomputation(head, *piece)
        for piece in zip(*(_pieces(value, chunk) for value in (hidden, targets, temperatures)), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]).detach()


def _pieces(value: Tensor, size: int) -> list[Tensor]:
    return [value[start : start + size] for start in range(0, len(value), size)]


def _chunk_with_recomputation(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperatures: Tensor
) -> tuple[Tensor, Tensor]:
    """One chunk through the module itself, so that hooks which gather a partitioned weight run."""

    def run(piece: Tensor) -> tuple[Tensor, Tensor]:
        return _statistics(head(piece).float() / temperatures[:, None], targets)

    if not torch.is_grad_enabled():
        return run(hidden)
    logprobs, entropy = checkpoint(run, hidden, use_reentrant=False)
    return logprobs, entropy


def _statistics(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    normaliser = logits.logsumexp(-1)
    logprobs = logits.gather(-1, targets[:, None]).squeeze(-1) - normaliser
    with torch.no_grad():
        probabilities = (logits - normaliser[:, None]).exp()
        entropy = normaliser - (probabilities * logits).sum(-1)
    return logprobs, entropy


class _FrozenHead(torch.autograd.Function):
    """The same for a weight without gradient, with one pass over the logits instead of two.

    The gradient of a log-probability by its hidden state, ``(W[target] - p W) / T``, does not depend on what comes
    later, so it is made while the logits are there and kept instead of them. The two buffers are used again for every
    chunk: asking the system for fresh pages costs as much as the arithmetic.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperatures: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        logprobs = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        entropy, slopes = torch.empty_like(logprobs), torch.empty_like(hidden)
        size = min(chunk, len(hidden))
        buffers = torch.empty(2, size, len(weight), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(hidden), chunk):
            at = slice(start, start + chunk)
            logits, masses = buffers[:, : len(targets[at])]
            _matmul_into(logits, hidden[at], weight)
            logits.div_(temperatures[at, None])
            logits.sub_(logits.amax(-1, keepdim=True))
            torch.exp(logits, out=masses)
            total = masses.sum(-1)
            normaliser = total.log()
            logprobs[at] = logits.gather(-1, targets[at, None]).squeeze(-1) - normaliser
            mean_row = (masses.to(weight.dtype) @ weight) / total[:, None].to(weight.dtype)
            slopes[at] = (weight[targets[at]] - mean_row) / temperatures[at, None].to(weight.dtype)
            entropy[at] = normaliser - logits.mul_(masses).sum(-1) / total
        ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        return slopes * gradients[0][:, None].to(slopes.dtype), None, None, None, None


def _matmul_into(out: Tensor, hidden: Tensor, weight: Tensor) -> None:
    if hidden.dtype == out.dtype:
        torch.mm(hidden, weight.T, out=out)
    else:
        out.copy_(hidden @ weight.T)
