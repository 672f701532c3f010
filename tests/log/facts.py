"""Small events and logs for the tests of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from schemas.events import DocumentSampled, EnvironmentReplayed, IncidentRaised, RunStarted
from schemas.records import PlayPlan, SlotTurn
from schemas.words import Setting
from spade_daemon.log.log import Log
from spade_daemon.log.stored import Stored
from spade_daemon.settings import Settings


def incident(name: str, message: str = "message") -> IncidentRaised:
    return IncidentRaised(incident=name, source="test", message=message, remedy="none")


def document(slot: int, generation: int, title: str = "title") -> DocumentSampled:
    return DocumentSampled(
        turn=SlotTurn(slot=slot, generation=generation),
        document="d",
        title=title,
        text="0" * 64,
        words=3,
        setting=Setting.GAMES,
        skill="Optimization",
    )


def replay(slot: int, generation: int) -> EnvironmentReplayed:
    return EnvironmentReplayed(
        turn=SlotTurn(slot=slot, generation=generation),
        environment="e-000000000000",
        plan=PlayPlan(round=1, seeds=(1, 2)),
        reason="test",
    )


def starting(boot: str) -> Callable[[int], RunStarted]:
    return lambda epoch: RunStarted(epoch=epoch, boot=boot, slots=2, model="tiny", settings={})


async def start(log: Log, boot: str = "boot-1") -> Stored[RunStarted]:
    return await log.take_epoch(boot, starting(boot))


@asynccontextmanager
async def logs(settings: Settings, count: int) -> AsyncIterator[list[Log]]:
    """Several logs of the same run, each on its own connection."""
    opened = [await Log.open(settings, name=f"test-{number}") for number in range(count)]
    try:
        yield opened
    finally:
        for log in opened:
            await log.close()


async def everything(log: Log, start: int = 1, end: int | None = None) -> list[Stored]:
    return [stored async for stored in log.read(start, end)]
