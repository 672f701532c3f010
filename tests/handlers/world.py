"""A run without processes: real log, state, blobs, sandbox, memory and corpus; a scripted policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from handlers.reaction import Reaction
from handlers.weights import reconcile
from schemas.base import Payload
from schemas.events import DocumentSampled, EnvironmentProposed, EnvironmentValidated, RunStarted
from schemas.records import SlotTurn
from schemas.words import Setting
from spade_daemon.app import REACTIONS
from spade_daemon.corpus.store import Corpus
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.log.stored import Stored
from spade_daemon.memory.embedder import Embedder
from spade_daemon.memory.store import Memory
from spade_daemon.policy.canary import canary_ids
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.policy.client import Policy
from spade_daemon.policy.server import Server
from spade_daemon.policy.swap import Swapper
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.services import Services
from spade_daemon.settings import Settings, load
from tests.handlers.scripted import HashEmbedder, ScriptedServer
from tests.nats_server import settings_in

P = TypeVar("P", bound=Payload)
BY_TYPE: dict[str, Reaction] = {reaction.event.type: reaction for reaction in REACTIONS}
SKILL = "Optimization"
OVERRIDES = (
    "model.max_length=65536",
    "designer.max_tokens=8192",
    "agent.max_turns=8",
    "agent.max_tokens_per_turn=200",
    "agent.max_tokens=16384",
    "hint.max_tokens=400",
    "vet.seeds=2",
    "corpus.words=20",
    "policy.retry_seconds=0.2",
)
"""A token of the toy tokenizer is a byte, so every budget is larger than that of a real model."""


def settings_for(home: Path, *overrides: str) -> Settings:
    """Settings of the ``test`` profile for byte tokens, in a home of their own."""
    places = settings_in(home)
    chosen = load("test", overrides=(*OVERRIDES, *overrides))
    return chosen.model_copy(update={"home": places.home, "cache": places.cache, "nats": places.nats})


@dataclass
class World:
    """The machinery of one daemon, and what a test does with it."""

    services: Services
    policy: ScriptedServer
    started: Stored[RunStarted]

    async def append(self, payload: P, cause: Stored[Any] | None = None) -> Stored[P]:
        """Make a fact and wait until the state knows it."""
        stored = await self.services.log.append(payload, cause=cause)
        await self.services.projection.wait_for(stored.sequence)
        return cast(Stored[P], stored)

    async def react(self, stored: Stored[Any]) -> None:
        """What the daemon does with a delivered event; afterwards the state knows everything that followed."""
        await self.services.projection.wait_for(stored.sequence)
        await BY_TYPE[stored.event.type].handle(stored, self.services)
        await self.services.projection.wait_for(await self.services.log.last_sequence())

    async def all(self, kind: type[P] = Payload) -> list[Stored[P]]:  # type: ignore[assignment]
        """The events of a type, in order."""
        return [stored async for stored in self.services.log.read() if isinstance(stored.event.data, kind)]

    async def last(self, kind: type[P]) -> Stored[P]:
        """The newest event of a type."""
        return (await self.all(kind))[-1]

    async def until(self, kind: type[Payload], count: int) -> None:
        """Wait for that many events of a type."""
        projection = self.services.projection
        async with asyncio.timeout(60):
            while projection.state.counts.get(kind.type, 0) < count:
                await projection.changed()

    async def follows(self, stored: Stored[Any], kind: type[P]) -> Stored[P]:
        """React to ``stored``: exactly one event of ``kind`` comes of it, caused by it. Reacting again adds nothing."""
        before = {each.sequence for each in await self.all()}
        await self.react(stored)
        after = [each for each in await self.all() if each.sequence not in before]
        assert {each.event.causation for each in after} == {stored.event.id}
        await self.adds_nothing(stored)
        (found,) = (each for each in after if isinstance(each.event.data, kind))
        return found

    async def adds_nothing(self, stored: Stored[Any]) -> None:
        """React to ``stored`` and see that the log stays as it is."""
        end = await self.services.log.last_sequence()
        await self.react(stored)
        assert await self.services.log.last_sequence() == end

    async def sampled(self, slot: int = 0, generation: int = 0) -> Stored[DocumentSampled]:
        """A document in a slot."""
        return await self.append(
            DocumentSampled(
                turn=SlotTurn(slot=slot, generation=generation),
                document="d",
                title="Pipes",
                text=await self.services.log.blobs.put(b"Water finds the way."),
                words=4,
                setting=Setting.GAMES,
                skill=SKILL,
            ),
            cause=self.started,
        )

    async def proposed(self, slot: int = 0, generation: int = 0) -> Stored[EnvironmentProposed]:
        """What the scripted designer makes of a document."""
        await self.react(await self.sampled(slot, generation))
        return await self.last(EnvironmentProposed)

    async def validated(self, slot: int = 0, generation: int = 0) -> Stored[EnvironmentValidated]:
        """The gate's verdict on it."""
        await self.react(await self.proposed(slot, generation))
        return await self.last(EnvironmentValidated)


@asynccontextmanager
async def opened(
    settings: Settings,
    sandbox: Sandbox,
    chat: ChatTokens,
    policy: ScriptedServer,
    *,
    boot: str = "boot-1",
    embedder: Any = None,
) -> AsyncIterator[World]:
    """A daemon's machinery on the log that ``settings`` name; opened again on the same log, it goes on there."""
    async with AsyncExitStack() as stack:
        log = await Log.open(settings, name="test")
        stack.push_async_callback(log.close)
        projection = Projection(log)
        stack.push_async_callback(projection.stop)
        await projection.start()
        started = await log.take_epoch(boot, partial(_started, settings, boot))
        await projection.wait_for(started.sequence)
        embedder = embedder or HashEmbedder()
        memory = await Memory.open(settings.run_home() / "memory", await embedder.dimensions())
        stack.push_async_callback(memory.close)
        corpus = Corpus.open(settings.home / "corpus.sqlite")
        stack.callback(corpus.close)
        corpus.ensure_default()
        policy.chat = chat
        server = Server("http://policy:1", request_timeout=60.0, admin_timeout=10.0, transport=policy.transport)
        client = await stack.enter_async_context(
            Policy([server], stop_ids=chat.stop_ids, max_length=settings.model.max_length, settings=settings.policy)
        )
        services = Services(
            settings=settings,
            log=log,
            projection=projection,
            corpus=corpus,
            memory=memory,
            embedder=cast(Embedder, embedder),
            sandbox=sandbox,
            model=base_model(settings.home),
            chat=chat,
            policy=client,
            swapper=Swapper(canary_ids(chat), settings.policy.canary_tolerance, partial(_restart, policy)),
            episodes=asyncio.Semaphore(settings.agent.concurrency),
        )
        client.on_stale = partial(reconcile, services)
        yield World(services, policy, started)


def base_model(home: Path) -> Path:
    """The directory of a base model, as far as a stand-in server looks into it."""
    path = home / "model"
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text("{}", encoding="utf-8")
    return path


def _started(settings: Settings, boot: str, epoch: int) -> RunStarted:
    return RunStarted(epoch=epoch, boot=boot, slots=settings.curriculum.slots, model=settings.model.name, settings={})


async def _restart(policy: ScriptedServer, _: Server) -> None:
    policy.version, policy.weights, policy.paused = "default", "base", False
