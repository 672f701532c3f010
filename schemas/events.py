"""The events: facts in the past tense, one model each. Order here is the order of the loop."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, JsonValue

from schemas.base import Payload
from schemas.records import BlobName, Check, EnvironmentId, PlayPlan, SampleRef, SlotTurn
from schemas.words import Arm, DesignFailure, Fault, RetireReason, Setting, StopReason, VoidReason


class RunStarted(Payload):
    """A run began, or began again: a new epoch is in force from here on (the fencing token)."""

    type: ClassVar[str] = "run.started"
    epoch: int = Field(ge=1)
    boot: str
    """Identity of one ``spade up``: processes restarted under it keep the epoch."""
    slots: int = Field(ge=1)
    model: str
    settings: dict[str, JsonValue]

    def key(self) -> str:
        return str(self.epoch)


class RunStopped(Payload):
    """A run was stopped in order."""

    type: ClassVar[str] = "run.stopped"
    epoch: int
    reason: str

    def key(self) -> str:
        return str(self.epoch)


class EnvironmentSeeded(Payload):
    """A hand-written environment entered the memory: the designer's first example, the agent's first opponent."""

    type: ClassVar[str] = "environment.seeded"
    environment: EnvironmentId
    name: str
    setting: Setting
    skill: str
    description: str
    code: BlobName
    hint: str

    def key(self) -> str:
        return self.environment


class DocumentSampled(Payload):
    """A slot took a document to ground its next environment."""

    type: ClassVar[str] = "document.sampled"
    turn: SlotTurn
    document: str
    """Content digest of the document; ``none`` in a run without a corpus."""
    title: str
    text: BlobName
    words: int
    setting: Setting
    skill: str

    def key(self) -> str:
        return self.turn.token()


class EnvironmentReplayed(Payload):
    """A slot took a remembered environment instead of a document, so that the agent does not starve."""

    type: ClassVar[str] = "environment.replayed"
    turn: SlotTurn
    environment: EnvironmentId
    plan: PlayPlan
    reason: str

    def key(self) -> str:
        return self.turn.token()


class EnvironmentProposed(Payload):
    """The designer answered a document: with code, or with a failure that is recorded and never silently retried."""

    type: ClassVar[str] = "environment.proposed"
    environment: EnvironmentId
    turn: SlotTurn
    document: str
    setting: Setting
    skill: str
    failure: DesignFailure | None
    code: BlobName | None
    sample: SampleRef
    """The :class:`schemas.records.DesignRecord`."""
    references: tuple[EnvironmentId, ...] = ()
    """Remembered environments that stood in the prompt."""

    def key(self) -> str:
        return self.environment


class EnvironmentValidated(Payload):
    """The gate's verdict on a proposed environment, with every check, its numbers and its time."""

    type: ClassVar[str] = "environment.validated"
    environment: EnvironmentId
    turn: SlotTurn
    accepted: bool
    reason: str | None
    """Name of the first failed check."""
    checks: tuple[Check, ...]
    description: str
    hint: str | None
    embedding: BlobName | None
    """Little-endian float32 vector; stored because it need not be the same to the bit when computed again."""
    nearest: EnvironmentId | None
    similarity: float | None
    plan: PlayPlan | None
    """What is played in the first round; ``None`` when rejected."""
    walls: tuple[str, ...]
    """Sandbox walls that were in force."""

    def key(self) -> str:
        return self.environment


class EpisodeCompleted(Payload):
    """One episode ended, one way or another."""

    type: ClassVar[str] = "episode.completed"
    environment: EnvironmentId
    round: int
    arm: Arm
    play: int
    seed: int
    return_: float | None = Field(ge=-1, le=1)
    """Return in [-1, 1]; ``None`` when the fault is the environment's or the infrastructure's: the episode is void."""
    turns: int
    stop: StopReason
    fault: Fault | None
    attempts: int = 1
    """How often it was begun: infrastructure faults are retried."""
    sample: SampleRef | None
    """The :class:`schemas.records.EpisodeRecord`; ``None`` when nothing was sampled."""
    seconds: float
    walls: tuple[str, ...]
    detail: str = ""

    def key(self) -> str:
        return f"{self.environment}.{self.round}.{self.arm}.{self.play}"


class RegretComputed(Payload):
    """Both arms of a round are complete: its regret, the designer's reward, and whether the agent has a signal."""

    type: ClassVar[str] = "regret.computed"
    environment: EnvironmentId
    round: int
    turn: SlotTurn
    void: VoidReason | None
    regret: float | None
    regret_se: float | None
    """Standard error of the mean paired difference; ``None`` with fewer than two pairs."""
    pairs: int
    plain_mean: float | None
    hinted_mean: float | None
    win_rate: float | None
    """Share of plain episodes with a return above 0."""
    components: dict[str, float]
    """Every designer reward of the method, whichever is in use."""
    designer_reward: float | None
    """``None`` for a replayed or seed environment: no design is waiting for it."""
    agent_signal: bool
    """Plain returns are not all equal."""

    def key(self) -> str:
        return f"{self.environment}.{self.round}"


class EnvironmentRetired(Payload):
    """An environment left play and its slot is free."""

    type: ClassVar[str] = "environment.retired"
    environment: EnvironmentId
    round: int
    turn: SlotTurn
    reason: RetireReason

    def key(self) -> str:
        return f"{self.environment}.{self.round}"


class CheckpointPublished(Payload):
    """The trainer made a new policy version from one batch; its directory is complete and never changes."""

    type: ClassVar[str] = "checkpoint.published"
    policy: int = Field(ge=1)
    parent: int
    path: str
    manifest: str
    """SHA-256 of ``manifest.json``."""
    consumed_sequence: int
    """Stream sequence up to which batches have been taken: resume goes on from here."""
    groups: tuple[tuple[EnvironmentId, int], ...]
    """(environment, round) of the agent groups that were trained."""
    designs: tuple[EnvironmentId, ...]
    dropped: dict[str, int]
    """Groups and designs that were consumed but not trained, by reason."""
    metrics: dict[str, float]
    seconds: float
    canary: BlobName | None = None
    """Log-probabilities of a fixed prompt by the trainer, to compare with a server after its swap."""

    def key(self) -> str:
        return str(self.policy)


class WeightsSwapped(Payload):
    """One policy server now serves ``policy``, proved by the canary."""

    type: ClassVar[str] = "weights.swapped"
    policy: int
    server: str
    swap: str
    seconds: float
    paused_seconds: float
    canary_max_diff: float | None

    def key(self) -> str:
        return f"{self.policy}.{self.server}.{self.swap}"


class SwapFailed(Payload):
    """A swap did not happen; what the server serves now is said, never guessed."""

    type: ClassVar[str] = "swap.failed"
    policy: int
    server: str
    swap: str
    stage: str
    error: str
    serving: int | None
    """Version that the server serves after recovery; ``None`` when it must be restarted."""

    def key(self) -> str:
        return f"{self.policy}.{self.server}.{self.swap}"


class EventDead(Payload):
    """A handler gave up on an event after bounded retries: the dead letter, with its reason."""

    type: ClassVar[str] = "event.dead"
    handler: str
    sequence: int
    subject: str
    attempts: int
    error: str
    turn: SlotTurn | None = None
    """The slot's turn that the dead event held: it ends here, so that one bad event never stops a slot."""

    def key(self) -> str:
        return f"{self.handler}.{self.sequence}"


class IncidentRaised(Payload):
    """Something a person should look at; the run goes on or says why it does not."""

    type: ClassVar[str] = "incident.raised"
    incident: str
    """Random identity."""
    source: str
    message: str
    remedy: str

    def key(self) -> str:
        return self.incident


PAYLOADS: dict[str, type[Payload]] = {
    cls.type: cls
    for cls in (
        RunStarted,
        RunStopped,
        EnvironmentSeeded,
        DocumentSampled,
        EnvironmentReplayed,
        EnvironmentProposed,
        EnvironmentValidated,
        EpisodeCompleted,
        RegretComputed,
        EnvironmentRetired,
        CheckpointPublished,
        WeightsSwapped,
        SwapFailed,
        EventDead,
        IncidentRaised,
    )
}
"""Every event type by name."""
