"""Messages of a durable consumer to reactions, through a real nats-server and the daemon's own subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from nats.js.api import ConsumerInfo

from handlers.reaction import Reaction
from schemas.events import DocumentSampled, EpisodeCompleted, EventDead
from schemas.records import SlotTurn
from schemas.words import Arm, StopReason
from spade_daemon import app, delivery, live
from spade_daemon.errors import EpisodeFault, LogError, SpadeError, StaleEpochError, SwapError
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.log.stored import DIGEST, Stored, digest
from spade_daemon.policy.server import ServerError
from spade_daemon.sandbox.selftest import SandboxRefused
from spade_daemon.services import Services
from spade_daemon.settings import Settings
from tests.log.facts import document, start
from tests.log.test_fold import TURN, episode, proposed, sampled, validated

PATIENCE = 60.0
NAME = "daemon-document-sampled"


@dataclass
class Parts:
    """As much of the machinery as the subscriptions touch."""

    settings: Settings
    log: Log
    projection: Projection

    @property
    def state(self) -> Any:
        return self.projection.state


@dataclass
class Desk:
    """A daemon with one reaction that does what the test says."""

    parts: Parts
    handled: list[int] = field(default_factory=list)
    given_up: list[SpadeError] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    """Raised by the reaction, one a delivery."""
    work: Callable[[Stored[Any]], Awaitable[None]] | None = None
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def give_up(self, error: SpadeError) -> None:
        self.given_up.append(error)
        self.stopped.set()

    async def react(self, stored: Stored[Any], services: Services) -> None:
        self.handled.append(stored.sequence)
        if self.errors:
            raise self.errors.pop(0)
        if self.work is not None:
            await self.work(stored)

    async def consumer(self) -> ConsumerInfo:
        log = self.parts.log
        return await log._connection.js.consumer_info("spade-main", NAME)

    async def settled(self, count: int) -> None:
        """Until the server waits for no acknowledgement and has delivered ``count`` messages."""
        async with asyncio.timeout(PATIENCE):
            while True:
                info = await self.consumer()
                if info.num_ack_pending == 0 and info.num_pending == 0 and info.delivered.stream_seq >= count:
                    return
                await asyncio.sleep(0.02)

    async def dead(self) -> EventDead:
        """The dead letter, once it is there."""
        async with asyncio.timeout(PATIENCE):
            while self.parts.state.counts.get(EventDead.type, 0) < 1:
                await self.parts.projection.changed()
        return [s.event.data async for s in self.parts.log.read() if isinstance(s.event.data, EventDead)][-1]


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_DELAYS", (0.02, 0.02, 0.03, 0.02, 0.05))


@pytest.fixture
async def parts(event_log: Log, nats_settings: Settings) -> AsyncIterator[Parts]:
    await start(event_log)
    projection = Projection(event_log)
    await projection.start()
    yield Parts(nats_settings, event_log, projection)
    await projection.stop()


@asynccontextmanager
async def desk(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, kind: Any = DocumentSampled, concurrent: bool = False
) -> AsyncIterator[Desk]:
    """The daemon's subscriptions with this one reaction."""
    made = Desk(parts)
    monkeypatch.setattr(app, "REACTIONS", (Reaction(kind, made.react, concurrent),))
    broker = await app._subscribe(cast(Services, parts), made.give_up)
    try:
        yield made
    finally:
        await broker.stop()


async def test_what_is_handled_is_acknowledged(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await parts.log.append(document(0, 0))
    async with desk(parts, monkeypatch) as made:
        after = await parts.log.append(document(1, 0))
        await made.settled(after.sequence)
        assert made.handled == [before.sequence, after.sequence]
        assert (await made.consumer()).num_redelivered == 0
    async with desk(parts, monkeypatch) as again:
        await again.settled(after.sequence)
        assert again.handled == []


async def test_a_reaction_sees_its_own_event_in_the_state(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk(parts, monkeypatch) as made:
        folded: list[int] = []

        async def work(stored: Stored[Any]) -> None:
            folded.append(parts.state.sequence - stored.sequence)

        made.work = work
        for slot in range(5):
            last = await parts.log.append(document(slot, 0))
        await made.settled(last.sequence)
        assert len(folded) == 5 and min(folded) >= 0


@pytest.mark.parametrize(
    "error",
    [
        EpisodeFault(StopReason.POLICY_UNAVAILABLE, "away"),
        LogError("no server"),
        SwapError("reload", "not now"),
        ServerError("503"),
        TimeoutError(),
        ExceptionGroup("parts", [OSError("disk"), ServerError("503")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_the_infrastructure_is_waited_for(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """More often than any other failure: it lasts as long as it lasts, and nobody is to blame."""
    count = delivery.ATTEMPTS + 2
    async with desk(parts, monkeypatch) as made:
        made.errors = [error] * count
        stored = await parts.log.append(document(0, 0))
        await made.settled(stored.sequence)
        assert made.handled == [stored.sequence] * (count + 1)
    assert EventDead.type not in parts.state.counts


async def test_a_swap_is_tried_again_after_a_longer_pause(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_DELAYS", (0.02, 0.02, 0.02, 0.02, 0.3))
    async with desk(parts, monkeypatch) as made:
        made.errors = [SwapError("reload", "not now")]
        stored = await parts.log.append(document(0, 0))
        await made.settled(stored.sequence)
        assert len(made.handled) == 2


async def test_a_defect_becomes_a_dead_letter_and_the_rest_goes_on(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk(parts, monkeypatch) as made:

        async def work(stored: Stored[Any]) -> None:
            if stored.event.data.turn.slot == 0:
                raise ZeroDivisionError("a defect of ours")

        made.work = work
        bad, good = await parts.log.append(document(0, 0)), await parts.log.append(document(1, 0))
        dead = await made.dead()
        await made.settled(good.sequence)
        assert made.handled.count(bad.sequence) == delivery.ATTEMPTS
        assert made.handled.count(good.sequence) == 1
        assert (dead.handler, dead.sequence, dead.attempts) == (NAME, bad.sequence, delivery.ATTEMPTS)
        assert "a defect of ours" in dead.error
        assert dead.turn == SlotTurn(slot=0, generation=0)
        assert made.given_up == []
    slots = parts.state.slots
    assert slots[0].phase == "free" and slots[1].phase == "designing"


async def test_a_defect_that_passes_is_forgotten(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk(parts, monkeypatch) as made:
        made.errors = [ValueError("once"), ExceptionGroup("two", [ValueError("x"), ServerError("503")])]
        stored = await parts.log.append(document(0, 0))
        await made.settled(stored.sequence)
        assert len(made.handled) == 3
    assert EventDead.type not in parts.state.counts


async def test_patience_with_the_infrastructure_has_an_end(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 3)
    async with desk(parts, monkeypatch) as made:
        made.errors = [LogError("for ever")] * 10
        await parts.log.append(document(0, 0))
        assert (await made.dead()).attempts == 3


async def test_an_episode_is_dead_in_the_turn_of_its_round(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event carries no turn of its own; without it the slot would never be free."""
    for payload in (sampled(), proposed(), validated()):
        await parts.log.append(payload)
    async with desk(parts, monkeypatch, EpisodeCompleted) as made:
        made.errors = [KeyError("defect")] * delivery.ATTEMPTS
        await parts.log.append(episode(Arm.PLAIN, 0, 1.0))
        assert (await made.dead()).turn == TURN
    assert parts.state.slots[0].phase == "free"


async def test_a_stale_event_is_acknowledged_and_not_reacted_to(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, nats_settings: Settings
) -> None:
    newer = await Log.open(nats_settings, name="newer")
    await start(newer, "boot-2")
    with pytest.raises(StaleEpochError):
        await parts.log.append(document(0, 0, title="stale"))
    fact = await newer.append(document(1, 0))
    async with desk(Parts(nats_settings, newer, parts.projection), monkeypatch) as made:
        await made.settled(fact.sequence)
        assert made.handled == [fact.sequence]
    assert parts.state.stale == 1
    await newer.close()


@pytest.mark.parametrize(
    "error",
    [
        StaleEpochError("a newer start is in force"),
        ExceptionGroup("plays", [ValueError("other"), ExceptionGroup("in", [StaleEpochError("newer")])]),
        SandboxRefused("a wall is gone"),
    ],
    ids=["plain", "in a group", "sandbox"],
)
async def test_who_may_not_go_on_gives_up_and_leaves_the_event(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with desk(parts, monkeypatch) as made:
        made.errors = [error]
        await parts.log.append(document(0, 0))
        async with asyncio.timeout(PATIENCE):
            await made.stopped.wait()
        (found,) = made.given_up
        assert isinstance(found, StaleEpochError | SandboxRefused)
        assert (await made.consumer()).num_ack_pending == 1
    assert EventDead.type not in parts.state.counts


@pytest.mark.parametrize(
    ("body", "sealed", "reason"),
    [(b'{"type": "document.sampled", "version": 99}', True, "version 99"), (b"{}", False, "does not fit its digest")],
)
async def test_a_message_that_cannot_be_read_is_buried(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, body: bytes, sealed: bool, reason: str
) -> None:
    headers = {DIGEST: digest(body) if sealed else "0" * 64}
    async with desk(parts, monkeypatch) as made:
        await parts.log._connection.js.publish("spade.main.document.sampled.s0.0", body, headers=headers)
        async with asyncio.timeout(PATIENCE):
            while (dead := await parts.log.last(EventDead, f"{NAME}.2")) is None:  # noqa: ASYNC110 (the fold stops)
                await asyncio.sleep(0.02)
        await made.settled(2)
        data = EventDead.model_validate(dead.event.data.model_dump())
        assert (data.sequence, data.attempts, data.turn) == (2, 1, None)
        assert reason in data.error
        assert made.handled == []


async def test_a_long_reaction_is_given_to_nobody_else(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "ACK_WAIT", 0.4)
    monkeypatch.setattr(delivery, "HEARTBEAT", 0.05)
    async with desk(parts, monkeypatch, concurrent=True) as made:

        async def work(_: Stored[Any]) -> None:
            await asyncio.sleep(1.2)

        made.work = work
        stored = await parts.log.append(document(0, 0))
        await made.settled(stored.sequence)
        assert made.handled == [stored.sequence]


async def test_a_reaction_at_work_when_the_daemon_stops_is_delivered_again(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "GRACE", 0.1)
    monkeypatch.setattr(app, "ACK_WAIT", 1.0)
    begun = asyncio.Event()

    async def for_ever(_: Stored[Any]) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with desk(parts, monkeypatch) as made:
        made.work = for_ever
        stored = await parts.log.append(document(0, 0))
        await begun.wait()
    async with desk(parts, monkeypatch) as again:
        await again.settled(stored.sequence)
        assert again.handled == [stored.sequence]


@pytest.mark.parametrize("concurrent", [True, False])
async def test_as_many_at_a_time_as_there_are_slots(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, concurrent: bool
) -> None:
    now = peak = 0

    async def work(_: Stored[Any]) -> None:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.1)
        now -= 1

    async with desk(parts, monkeypatch, concurrent=concurrent) as made:
        made.work = work
        for generation in range(6):
            last = await parts.log.append(document(0, generation))
        await made.settled(last.sequence)
        assert len(made.handled) == 6
    assert peak == (parts.settings.curriculum.slots if concurrent else 1)


async def test_a_running_daemon_says_what_it_believes(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await live.ask(parts.settings, timeout=0.2) is None
    async with desk(parts, monkeypatch):
        answer = await live.ask(parts.settings)
        assert answer == live.live_state(parts.state)
        assert (answer.sequence, answer.epoch, answer.digest) == (1, 1, parts.state.digest())


def test_whose_fault_an_error_is() -> None:
    ours = EpisodeFault(StopReason.ENVIRONMENT_CRASH, "its own")
    assert not delivery.is_infrastructure(ours)
    assert not delivery.is_infrastructure(ExceptionGroup("x", [OSError(), ours]))
    assert delivery.find(ExceptionGroup("x", [OSError()]), delivery.FATAL) is None
