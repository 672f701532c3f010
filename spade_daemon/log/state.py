"""What the log means right now: the state that every process folds for itself. Data only; see ``fold`` for the rules.

All values are immutable and share structure, so that keeping an old state costs nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

import orjson
from immutables import Map
from pydantic import BaseModel

from schemas.events import CheckpointPublished, EpisodeCompleted, RegretComputed
from schemas.records import PlayPlan, SampleRef, SlotTurn
from schemas.words import Arm, Origin, Setting

RECENT = 64
"""How many recent design outcomes and incidents the state keeps."""


class Phase(StrEnum):
    """What a slot is waiting for."""

    DESIGNING = "designing"
    VETTING = "vetting"
    PLAYING = "playing"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Slot:
    """One of the ``k`` places in flight."""

    turn: SlotTurn
    phase: Phase
    environment: str | None = None
    round: int = 0
    since: int = 0
    """Sequence of the event that brought it into this phase."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of paired plays of one environment."""

    plan: PlayPlan
    turn: SlotTurn
    began: int
    episodes: Map[tuple[str, int], EpisodeCompleted] = field(default_factory=Map)
    """By (arm, play); emptied once the trainer has consumed the round."""
    regret: RegretComputed | None = None

    def missing(self) -> list[tuple[Arm, int, int]]:
        """Episodes ``(arm, play, seed)`` that have not ended yet."""
        return [item for item in self.plan.episodes() if (item[0].value, item[1]) not in self.episodes]


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything known about one environment, rejected ones included."""

    id: str
    origin: Origin
    setting: Setting
    skill: str
    born: int
    """Sequence of the event that introduced it."""
    code: str | None
    document: str | None = None
    description: str = ""
    hint: str | None = None
    embedding: str | None = None
    accepted: bool | None = None
    """``None`` while the gate has not spoken."""
    reason: str | None = None
    design: SampleRef | None = None
    references: tuple[str, ...] = ()
    rounds: Map[int, Round] = field(default_factory=Map)
    plays: int = 0
    """Plain episodes with a return, over all rounds."""
    wins: int = 0
    regret: float | None = None
    """Regret of the newest round that was not void."""
    regret_se: float | None = None
    last_played: int = 0
    void_rounds: int = 0

    @property
    def win_rate(self) -> float | None:
        """Share of plain plays won so far."""
        return self.wins / self.plays if self.plays else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing for the trainer: a finished round, or a design that failed. Dropped once consumed."""

    sequence: int
    environment: str
    round: int
    skill: str
    design: SampleRef | None
    """The design to train, if this outcome settles one."""
    reward: float | None
    """Designer reward; ``None`` for an invalid design (the trainer's settings price it) or where no design waits."""
    invalid: str | None
    """Reason of an invalid design."""
    agent_signal: bool
    progress: float = 0.0
    """Share of the gate's checks that an invalid design passed before it failed; 0 when it holds no environment."""
    plain: tuple[EpisodeCompleted, ...] = ()
    """Plain episodes of the round in play order, when it is not void."""


@dataclass(frozen=True, slots=True)
class SkillStats:
    """Counts of one skill."""

    designed: int = 0
    accepted: int = 0
    rounds: int = 0
    regret_sum: float = 0.0
    win_sum: float = 0.0


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong, kept for ``spade status``."""

    sequence: int
    source: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """The fold of the log up to ``sequence``."""

    sequence: int = 0
    run: str = ""
    epoch: int = 0
    boot: str = ""
    model: str = ""
    starts: Map[int, int] = field(default_factory=Map)
    """Epoch -> sequence of its ``run.started``."""
    running: bool = False
    counts: Map[str, int] = field(default_factory=Map)
    stale: int = 0
    """Events of an older epoch that arrived after a newer start: they do not count."""
    unexpected: int = 0
    """Events about things that the log never introduced."""
    slots: Map[int, Slot] = field(default_factory=Map)
    environments: Map[str, Environment] = field(default_factory=Map)
    outcomes: tuple[Outcome, ...] = ()
    checkpoint: CheckpointPublished | None = None
    checkpoints: Map[int, str] = field(default_factory=Map)
    """Policy version -> path, for every published version."""
    serving: Map[str, int] = field(default_factory=Map)
    """Policy server -> version that it was last seen to serve."""
    swaps: int = 0
    skills: Map[str, SkillStats] = field(default_factory=Map)
    rejections: Map[str, int] = field(default_factory=Map)
    retirements: Map[str, int] = field(default_factory=Map)
    faults: Map[str, int] = field(default_factory=Map)
    silent_rounds: int = 0
    """Rounds that teach nobody: equal returns, or void, and no design that waits for them."""
    recent_designs: tuple[bool, ...] = ()
    incidents: tuple[Incident, ...] = ()
    trained_groups: int = 0
    trained_designs: int = 0

    @property
    def version(self) -> int:
        """Newest published policy version; 0 is the base model."""
        return self.checkpoint.policy if self.checkpoint else 0

    @property
    def consumed(self) -> int:
        """Sequence up to which the trainer has taken its batches."""
        return self.checkpoint.consumed_sequence if self.checkpoint else 0

    def free_slots(self) -> list[Slot]:
        """Slots that wait for their next turn, in order."""
        return sorted((s for s in self.slots.values() if s.phase is Phase.FREE), key=lambda slot: slot.turn.slot)

    def digest(self) -> str:
        """SHA-256 over the canonical form: equal states have equal digests, whatever path led to them."""
        return hashlib.sha256(orjson.dumps(plain(self), option=orjson.OPT_SORT_KEYS)).hexdigest()


EMPTY = State()


def plain(value: Any) -> Any:
    """``value`` as JSON-ready data; maps with non-string keys become sorted lists of pairs."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Map):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        return [[plain(key), plain(item)] for key, item in sorted(value.items())]
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


__all__ = [
    "EMPTY",
    "RECENT",
    "Environment",
    "Incident",
    "Outcome",
    "Phase",
    "Round",
    "SkillStats",
    "Slot",
    "State",
    "plain",
]
