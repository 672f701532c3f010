"""What the trainer trains: token sequences exactly as the sampler saw them, each with its advantage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from schemas.base import Record
from schemas.records import DesignRecord, EpisodeRecord, TokenSample
from schemas.words import Arm, Role
from spade_daemon.errors import LogError
from spade_daemon.trainer.batch import BatchPlan, Design, Group, Play

R = TypeVar("R", bound=Record)


class Blobs(Protocol):
    """Where records lie: the log's blob store, or anything that answers like it."""

    async def get_record(self, cls: type[R], name: str) -> R:
        """The record that ``name`` names."""
        ...


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One sequence to train. ``ids``, ``trained`` and ``sampler`` have one entry a token.

    ``trained`` is true on sampled tokens; ``sampler`` holds their log-probability at ``temperature`` when sampled.
    """

    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    sampler: tuple[float, ...]
    advantage: float
    role: Role
    temperature: float
    version_min: int

    @property
    def trained_tokens(self) -> int:
        """Tokens with a loss. The first token of a sequence follows nothing, so it never has one."""
        return sum(self.trained[1:])


def training_sample(sample: TokenSample, advantage: float, role: Role) -> TrainingSample:
    """Tokens are copied, never encoded again."""
    return TrainingSample(
        ids=sample.ids,
        trained=sample.trained,
        sampler=sample.logprobs,
        advantage=advantage,
        role=role,
        temperature=sample.temperature,
        version_min=sample.version_min,
    )


def episode_samples(record: EpisodeRecord, group: Group, play: Play) -> tuple[TrainingSample, ...]:
    """Samples of one plain episode; every one of them has the episode's advantage.

    Raises:
        LogError: the blob is not that episode.
    """
    found = (record.environment, record.round, record.play, record.arm)
    expected = (group.environment, group.round, play.play, Arm.PLAIN)
    if found != expected:
        raise LogError(
            f"blob {play.sample.blob} holds episode {found} where {expected} was recorded: the log is damaged"
        )
    samples = (training_sample(sample, play.advantage, Role.AGENT) for sample in record.samples)
    return tuple(sample for sample in samples if sample.trained_tokens)


def design_samples(record: DesignRecord, design: Design) -> tuple[TrainingSample, ...]:
    """The sample of one design attempt; none for a reply without a token.

    Raises:
        LogError: the blob is not that design.
    """
    if record.environment != design.environment:
        raise LogError(
            f"blob {design.sample.blob} holds design {record.environment} where {design.environment} was recorded: "
            "the log is damaged"
        )
    if record.sample is None:
        return ()
    sample = training_sample(record.sample, design.advantage, Role.DESIGNER)
    return (sample,) if sample.trained_tokens else ()


async def fetch_samples(plan: BatchPlan, blobs: Blobs) -> tuple[TrainingSample, ...]:
    """All samples of a batch in its order: agent groups, then designs."""
    samples: list[TrainingSample] = []
    for group in plan.groups:
        for play in group.plays:
            episode = await blobs.get_record(EpisodeRecord, play.sample.blob)
            samples.extend(episode_samples(episode, group, play))
    for design in plan.designs:
        record = await blobs.get_record(DesignRecord, design.sample.blob)
        samples.extend(design_samples(record, design))
    return tuple(samples)


def token_counts(samples: Iterable[TrainingSample]) -> dict[Role, int]:
    """Trained tokens of each role: the denominators of its loss."""
    counts = dict.fromkeys(Role, 0)
    for sample in samples:
        counts[sample.role] += sample.trained_tokens
    return counts
