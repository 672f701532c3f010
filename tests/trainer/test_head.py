"""The chunked head is the plain one, to the gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from spade_daemon.trainer.head import token_logprobs

WORDS, SIZE, TOKENS = 37, 8, 11


def inputs() -> tuple[nn.Linear, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    head = nn.Linear(SIZE, WORDS, bias=False)
    hidden = torch.randn(TOKENS, SIZE, requires_grad=True)
    return head, hidden, torch.randint(0, WORDS, (TOKENS,)), torch.linspace(0.5, 2.0, TOKENS)


def plain(head: nn.Linear, hidden: Tensor, targets: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    distribution = torch.distributions.Categorical(logits=head(hidden) / temperatures[:, None])
    return distribution.log_prob(targets), distribution.entropy()


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_chunks_equal_the_whole(trained: bool, chunk: int) -> None:
    head, hidden, targets, temperatures = inputs()
    head.weight.requires_grad_(trained)
    weights = torch.linspace(-1, 1, TOKENS)
    results = []
    for logprobs, entropy in (
        plain(head, hidden, targets, temperatures),
        token_logprobs(head, hidden, targets, temperatures, chunk),
    ):
        hidden.grad = head.weight.grad = None
        (logprobs * weights).sum().backward()
        results.append((logprobs, entropy, hidden.grad, head.weight.grad))
    for expected, found in zip(*results, strict=True):
        if expected is None:
            assert found is None
        else:
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not results[1][1].requires_grad


def test_without_gradient() -> None:
    with torch.no_grad():
        head, hidden, targets, temperatures = inputs()
        for expected, found in zip(
            plain(head, hidden, targets, temperatures),
            token_logprobs(head, hidden, targets, temperatures, 4),
            strict=True,
        ):
            torch.testing.assert_close(found, expected)
