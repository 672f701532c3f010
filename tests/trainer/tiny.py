"""Settings and samples for a tiny model."""

from __future__ import annotations

import random
from pathlib import Path

from schemas.words import Role
from spade_daemon.settings import Settings, load
from spade_daemon.trainer.samples import TrainingSample

WORDS = 211


def settings_for(home: Path, base: Path, *overrides: str) -> Settings:
    """Settings of a trainer of the tiny model that learns fast."""
    return load(
        "test",
        overrides=(
            f"home={home}",
            f"model.name={base}",
            "trainer.learning_rate=0.01",
            "trainer.micro_batch_tokens=128",
            "trainer.min_free_gb=0.0",
            *overrides,
        ),
    )


def sample(
    seed: int, advantage: float, *, role: Role = Role.AGENT, length: int = 24, temperature: float = 1.0
) -> TrainingSample:
    """A random sequence whose second half was sampled, about as likely as a uniform choice."""
    rng = random.Random(seed)
    trained = tuple(at >= length // 2 for at in range(length))
    return TrainingSample(
        ids=tuple(rng.randrange(WORDS) for _ in range(length)),
        trained=trained,
        sampler=tuple(-5.35 if t else 0.0 for t in trained),
        advantage=advantage,
        role=role,
        temperature=temperature,
        version_min=0,
    )


def batch(seed: int = 0) -> tuple[TrainingSample, ...]:
    """Both roles, both signs, several micro-batches."""
    return (
        sample(seed * 10 + 1, 0.5, length=40),
        sample(seed * 10 + 2, -0.5, length=30),
        sample(seed * 10 + 3, 0.7, length=24, temperature=0.8),
        sample(seed * 10 + 4, 0.3, role=Role.DESIGNER, length=100),
        sample(seed * 10 + 5, -0.3, role=Role.DESIGNER, length=90),
    )
