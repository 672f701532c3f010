"""Records that events carry inside them or name as blobs (token ids, transcripts, verdicts)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.words import Arm

BlobName = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""Name of a blob: the SHA-256 of its content, in hex."""
EnvironmentId = Annotated[str, Field(pattern=r"^e-[0-9a-f]{12}$")]
SlotIndex = Annotated[int, Field(ge=0)]


class SlotTurn(Record):
    """One use of one slot: slot ``slot`` for the ``generation``-th time. Its successor has ``generation + 1``."""

    slot: SlotIndex
    generation: int = Field(ge=0)

    def token(self) -> str:
        """The subject tokens ``s<slot>.<generation>``."""
        return f"s{self.slot}.{self.generation}"

    def next(self) -> SlotTurn:
        """The turn that follows when this one ends."""
        return SlotTurn(slot=self.slot, generation=self.generation + 1)


class Check(Record):
    """Verdict of one check of the gate."""

    name: str
    passed: bool
    detail: str = ""
    """One line a person can act on; empty when passed."""
    numbers: dict[str, float] = {}
    seconds: float = 0.0


class PlayPlan(Record):
    """What is to be played in one round: each seed once in each arm (paired, paper section 3.2)."""

    round: int = Field(ge=0)
    seeds: tuple[int, ...]
    arms: tuple[Arm, ...] = (Arm.PLAIN, Arm.HINTED)

    def episodes(self) -> list[tuple[Arm, int, int]]:
        """All ``(arm, play, seed)`` of the round, arms of one seed side by side."""
        return [(arm, play, seed) for play, seed in enumerate(self.seeds) for arm in self.arms]


class VersionSpan(Record):
    """Sampled tokens ``start`` to ``end`` (exclusive, within the sampled tokens of one reply) came from ``version``."""

    version: int
    start: int
    end: int


class TokenSample(Record):
    """One contiguous token sequence as the sampler saw it: what was sampled is what is trained.

    ``ids``, ``trained`` and ``logprobs`` have one entry a token. ``trained`` is true exactly on sampled tokens;
    ``logprobs`` holds the sampler's log-probability there (at temperature ``temperature``) and 0.0 elsewhere.
    """

    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    logprobs: tuple[float, ...]
    version_min: int
    """Oldest policy version among the sampled tokens: staleness is measured against it."""
    version_max: int
    temperature: float = Field(gt=0)

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if not len(self.ids) == len(self.trained) == len(self.logprobs):
            raise ValueError("ids, trained and logprobs must have the same length")
        return self


class Turn(Record):
    """One exchange: what the agent saw, what it wrote, what the environment answered."""

    observation: str
    response: str
    action: str | None
    """What reached ``step``; ``None`` when the reply was cut and therefore never executed."""
    reward: float | None
    terminated: bool = False
    truncated: bool = False


class EpisodeRecord(Record):
    """Blob of one episode: the transcript for people, the samples for the trainer."""

    environment: EnvironmentId
    round: int
    arm: Arm
    play: int
    seed: int
    hint: str | None
    turns: tuple[Turn, ...]
    final_observation: str
    """What the environment said after the last action."""
    samples: tuple[TokenSample, ...]
    error: str | None = None


class DesignRecord(Record):
    """Blob of one design attempt: the prompt in words, the reply in words, the tokens."""

    environment: EnvironmentId
    prompt: tuple[tuple[str, str], ...]
    """(role, content) of each message."""
    response: str
    sample: TokenSample | None
    """``None`` for a reply without a single token."""


class SampleRef(Record):
    """Summary of a blob that holds samples: enough to choose a batch without fetching it."""

    blob: BlobName
    prompt_tokens: int
    sampled_tokens: int
    version_min: int
    version_max: int
    temperature: float


class FileDigest(Record):
    """One file of a checkpoint."""

    name: str
    sha256: str
    size: int


class CheckpointManifest(Record):
    """``manifest.json`` of a checkpoint directory: written last, so that its presence means the rest is complete."""

    schema_version: int = 1
    version: int
    parent: int
    epoch: int
    base_model: str
    consumed_sequence: int
    """Stream sequence up to which the trainer has taken its batches."""
    tensors: int
    dtype: str
    files: tuple[FileDigest, ...]


class Canary(Record):
    """A fixed prompt and its log-probabilities by the trainer: a server that took the weights must agree."""

    ids: tuple[int, ...] = Field(min_length=2)
    logprobs: tuple[float, ...]
    """Log-probability of ``ids[i]`` given ``ids[:i]`` for each ``i >= 1``, at temperature 1."""

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if len(self.logprobs) != len(self.ids) - 1:
            raise ValueError("logprobs must have one entry fewer than ids")
        return self


__all__ = [
    "BlobName",
    "Canary",
    "Check",
    "CheckpointManifest",
    "DesignRecord",
    "EnvironmentId",
    "EpisodeRecord",
    "FileDigest",
    "PlayPlan",
    "Record",
    "SampleRef",
    "SlotIndex",
    "SlotTurn",
    "TokenSample",
    "Turn",
    "VersionSpan",
]
