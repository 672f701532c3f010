"""Micro-batches: sequences of like length, padded on the right, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from schemas.words import Role
from spade_daemon.trainer.samples import TrainingSample


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Tensors of one forward and backward pass: B padded sequences of T tokens with N trained ones.

    ``rows`` and ``columns`` say where a trained token is *predicted*: one position before it stands.
    """

    ids: Tensor
    """[B, T] int64."""
    rows: Tensor
    """[N] int64."""
    columns: Tensor
    """[N] int64."""
    targets: Tensor
    """[N] int64: the tokens that were sampled."""
    sampler: Tensor
    """[N] float32."""
    advantages: Tensor
    """[N] float32."""
    temperatures: Tensor
    """[N] float32."""
    designer: Tensor
    """[N] bool: the token is the designer's, else the agent's."""

    def to(self, device: torch.device) -> MicroBatch:
        """The same on ``device``."""
        return MicroBatch(*(getattr(self, name).to(device) for name in self.__slots__))


def pack(samples: Sequence[TrainingSample], budget: int) -> tuple[tuple[TrainingSample, ...], ...]:
    """Group samples so that a group's padded size is at most ``budget`` tokens.

    Longest first, so that the largest micro-batch comes first and running out of memory is not a late surprise. Equal
    lengths keep their order. A sample longer than the budget is alone.
    """
    order = sorted(range(len(samples)), key=lambda i: (-len(samples[i].ids), i))
    packed: list[list[TrainingSample]] = []
    for i in order:
        if packed and len(packed[-1][0].ids) * (len(packed[-1]) + 1) <= budget:
            packed[-1].append(samples[i])
        else:
            packed.append([samples[i]])
    return tuple(tuple(group) for group in packed)


def collate(samples: Sequence[TrainingSample]) -> MicroBatch:
    """Tensors of some samples, padded on the right.

    No attention mask is needed: attention is causal, so no real token sees what pads, and no padding is predicted.
    """
    length = max(len(sample.ids) for sample in samples)
    ids = torch.zeros(len(samples), length, dtype=torch.int64)
    rows, columns, owners = [], [], []
    for row, sample in enumerate(samples):
        ids[row, : len(sample.ids)] = torch.tensor(sample.ids)
        for at in range(1, len(sample.ids)):
            if sample.trained[at]:
                rows.append(row)
                columns.append(at - 1)
                owners.append(sample)
    places = list(zip(owners, columns, strict=True))
    return MicroBatch(
        ids=ids,
        rows=torch.tensor(rows, dtype=torch.int64),
        columns=torch.tensor(columns, dtype=torch.int64),
        targets=torch.tensor([sample.ids[at + 1] for sample, at in places], dtype=torch.int64),
        sampler=torch.tensor([sample.sampler[at + 1] for sample, at in places], dtype=torch.float32),
        advantages=torch.tensor([sample.advantage for sample in owners], dtype=torch.float32),
        temperatures=torch.tensor([sample.temperature for sample in owners], dtype=torch.float32),
        designer=torch.tensor([sample.role is Role.DESIGNER for sample in owners], dtype=torch.bool),
    )
