"""A recorded run: one event of every type, with the blobs that they name."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.base import Payload
from schemas.events import (
    CheckpointPublished,
    EnvironmentRetired,
    EnvironmentSeeded,
    EpisodeCompleted,
    EventDead,
    IncidentRaised,
    RunStopped,
    SwapFailed,
    WeightsSwapped,
)
from schemas.records import EpisodeRecord, SlotTurn, TokenSample, Turn
from schemas.words import Arm, DesignFailure, RetireReason, Setting
from spade_daemon.log.log import Log
from spade_daemon.log.projection import state_at
from spade_daemon.log.state import State
from spade_daemon.log.stored import Stored
from spade_daemon.memory.entry import MemoryEntry
from spade_daemon.memory.store import Memory
from spade_daemon.settings import Settings
from tests.handlers.scripted import DIMENSIONS, HashEmbedder
from tests.log.facts import replay, start
from tests.log.test_fold import BLOB, DESIGN, PLAN, PLAYED, SAMPLE, SEED, TURN, proposed, regret, sampled, validated
from tests.vetting.environments import GOOD, PROBE

REFUSED = "e-0000000000dd"
HINT = "look [first], then dig"
SAID = "I choose [bold]this[/bold]."


@dataclass(frozen=True)
class Recording:
    """What the log holds."""

    events: tuple[Stored, ...]
    state: State

    def sequence(self, kind: type[Payload]) -> int:
        """Of the last event of a type."""
        return [stored.sequence for stored in self.events if isinstance(stored.event.data, kind)][-1]


async def record(settings: Settings) -> Recording:
    """Append the whole run and remember its environments."""
    log = await Log.open(settings, name="record")
    try:
        cause: Stored = await start(log)
        for payload in await _payloads(log):
            cause = await log.append(payload, cause=cause)
        events = tuple([stored async for stored in log.read()])
        state = await state_at(log, events[-1].sequence)
        await _remember(settings, state)
        return Recording(events, state)
    finally:
        await log.close()


async def _payloads(log: Log) -> list[Payload]:
    probe, good = await log.blobs.put(PROBE.encode()), await log.blobs.put(GOOD.encode())
    text = await log.blobs.put(b"Water finds the way.")
    sample = SAMPLE.model_copy(update={"blob": await log.blobs.put_record(_episode())})
    other = {"environment": REFUSED, "turn": SlotTurn(slot=1, generation=0)}
    return [
        EnvironmentSeeded(
            environment=SEED,
            name="leak",
            setting=Setting.GAMES,
            skill="Logical Deduction",
            description="Find a [leaking] pipe.",
            code=probe,
            hint=HINT,
        ),
        sampled().model_copy(update={"text": text, "title": "Water [and] pipes"}),
        proposed().model_copy(update={"code": good, "references": (SEED,)}),
        validated().model_copy(update={"hint": HINT, "description": "Dig up two chests."}),
        *(episode.model_copy(update={"sample": sample}) for episode in PLAYED),
        regret(),
        EnvironmentRetired(environment=DESIGN, round=0, turn=TURN, reason=RetireReason.PLAYED),
        sampled(SlotTurn(slot=1, generation=0)).model_copy(update={"text": text}),
        proposed(DesignFailure.NO_CODE).model_copy(update=other),
        EnvironmentRetired(environment=REFUSED, round=0, turn=SlotTurn(slot=1, generation=0), reason="unparsable"),
        replay(1, 1).model_copy(update={"environment": SEED, "plan": PLAN}),
        *_servers(),
        RunStopped(epoch=1, reason="stopped by a person"),
    ]


def _servers() -> list[Payload]:
    return [
        CheckpointPublished(
            policy=1,
            parent=0,
            path="/v1",
            manifest=BLOB,
            consumed_sequence=9,
            groups=((DESIGN, 0),),
            designs=(DESIGN,),
            dropped={},
            metrics={"loss": 0.125},
            seconds=7.0,
        ),
        WeightsSwapped(policy=1, server="s", swap="a", seconds=1.5, paused_seconds=0.2, canary_max_diff=1e-6),
        SwapFailed(policy=1, server="t", swap="b", stage="reload", error="shapes differ", serving=None),
        EventDead(handler="daemon-x", sequence=3, subject="s", attempts=5, error="boom", turn=None),
        IncidentRaised(incident="i1", source="trainer", message="the disk is [full]", remedy="free some"),
    ]


def _episode() -> EpisodeRecord:
    turns = (
        Turn(observation="Two chests.", response=SAID, action="\\boxed{dig 3}", reward=0.0),
        Turn(observation="Further east.", response="cut", action=None, reward=None),
    )
    return EpisodeRecord(
        environment=DESIGN,
        round=0,
        arm=Arm.HINTED,
        play=1,
        seed=2,
        hint=HINT,
        turns=turns,
        final_observation="You win.",
        samples=(
            TokenSample(
                ids=(1, 2, 3),
                trained=(False, True, True),
                logprobs=(0.0, -0.5, -0.5),
                version_min=0,
                version_max=0,
                temperature=1.0,
            ),
        ),
        error="nothing [really]",
    )


async def _remember(settings: Settings, state: State) -> None:
    memory = await Memory.open(settings.run_home() / "memory", DIMENSIONS)
    codes = {SEED: PROBE, DESIGN: GOOD}
    entries = [
        MemoryEntry(
            id=found.id,
            name=found.description,
            setting=found.setting.value,
            skill=found.skill,
            origin=found.origin.value,
            description=found.description,
            code=codes[found.id],
            hint=found.hint or "",
            win_rate=found.win_rate,
            regret=found.regret,
            regret_se=found.regret_se,
            plays=found.plays,
            rounds=len(found.rounds),
            born=found.born,
            last_played=found.last_played,
            vector=HashEmbedder().encode([found.description])[0],
        )
        for found in (state.environments[SEED], state.environments[DESIGN])
    ]
    await memory.upsert(entries, sequence=state.sequence)
    await memory.close()


__all__ = ["DESIGN", "REFUSED", "SEED", "EpisodeCompleted", "Recording", "record"]
