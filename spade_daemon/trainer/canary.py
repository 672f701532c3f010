"""The trainer's side of the canary: what the new weights say of a fixed prompt."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from schemas.records import Canary
from spade_daemon.trainer.engine import Engine


def canary_of(engine: Engine, ids: Sequence[int]) -> Canary:
    """Log-probability of each token of ``ids`` after the first, at temperature 1, by the weights as they are now."""
    tokens = torch.tensor([list(ids)], device=engine.device)
    columns = torch.arange(len(ids) - 1, device=engine.device)
    with torch.no_grad():
        logprobs, _ = engine.deepspeed(
            tokens,
            torch.zeros_like(columns),
            columns,
            tokens[0, 1:],
            torch.ones(len(ids) - 1, device=engine.device),
        )
    return Canary(ids=tuple(ids), logprobs=tuple(logprobs.tolist()))
