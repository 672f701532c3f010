"""The composition root of the daemon: the one file that knows every handler and builds every part.

Start: open the log, take the epoch, fold, open memory, sandbox and policy, then subscribe. Stop: no new messages, let
running reactions finish within the grace time, close. What does not finish is delivered again at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from uuid import uuid4

import structlog
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from faststream.security import SASLPlaintext
from nats.js.api import AckPolicy as NatsAckPolicy
from nats.js.api import ConsumerConfig, DeliverPolicy

from handlers import (
    checkpoint_published,
    document_sampled,
    environment_proposed,
    environment_replayed,
    environment_retired,
    environment_seeded,
    environment_validated,
    episode_completed,
    event_dead,
    regret_computed,
    run_started,
    weights_swapped,
)
from handlers.reaction import Reaction
from handlers.weights import reconcile, serve_newest
from schemas.events import RunStarted
from schemas.records import SlotTurn
from spade_daemon import live
from spade_daemon.corpus.store import Corpus
from spade_daemon.delivery import ACK_WAIT, Delivery
from spade_daemon.envs.support import support_sources
from spade_daemon.errors import ConfigError, SpadeError
from spade_daemon.log import server, subjects
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.log.state import State
from spade_daemon.log.stored import Stored, counts
from spade_daemon.memory.embedder import Embedder
from spade_daemon.memory.store import Memory
from spade_daemon.policy.canary import canary_ids
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.policy.client import Policy
from spade_daemon.policy.models import ensure_model
from spade_daemon.policy.server import Server
from spade_daemon.policy.swap import Swapper
from spade_daemon.processes import client
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.services import Services
from spade_daemon.settings import Settings

log = structlog.get_logger()

GRACE = 45.0
"""Seconds that running reactions get to finish after SIGTERM; the supervisor waits longer than this."""

REACTIONS: tuple[Reaction, ...] = tuple(
    module.REACTION
    for module in (
        run_started,
        environment_seeded,
        document_sampled,
        environment_replayed,
        environment_proposed,
        environment_validated,
        episode_completed,
        regret_computed,
        environment_retired,
        checkpoint_published,
        weights_swapped,
        event_dead,
    )
)


GiveUp = Callable[[SpadeError], None]
"""Ends the daemon with this error."""


async def run_daemon(settings: Settings) -> None:
    """Run the daemon until SIGTERM, SIGINT or a newer start of the run.

    Raises:
        SpadeError: a part cannot start, or this process was fenced off; one line says which and what to do.
    """
    stop = asyncio.Event()
    failure: list[SpadeError] = []

    def give_up(error: SpadeError) -> None:
        failure.append(error)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        services, started = await stack.enter_async_context(_services(settings))
        stack.callback(log.info, "daemon stopped")
        watch = asyncio.create_task(_watch(services.projection, give_up))
        stack.callback(watch.cancel)
        ready = asyncio.create_task(_begin(services, started))
        if not await _first_of(stop, ready):
            log.info("daemon stops before it was ready")
            if failure:
                raise failure[0]
            return
        broker = await _subscribe(services, give_up)
        log.info("daemon is ready", epoch=services.log.epoch, sequence=services.state.sequence)
        await stop.wait()
        log.info("daemon is stopping", grace=GRACE)
        await broker.stop()
    if failure:
        raise failure[0]


async def _first_of(stop: asyncio.Event, task: asyncio.Task[None]) -> bool:
    """Whether ``task`` finished before ``stop``; its failure is raised."""
    waiter = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({waiter, task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
    if not task.done():
        task.cancel()
        return False
    task.result()
    return True


async def _begin(services: Services, started: Stored[RunStarted]) -> None:
    """What must hold before the first reaction: every server has the newest weights, every slot is at work."""
    await serve_newest(services, started)
    await run_started.resume(started, services)


async def _watch(projection: Projection, give_up: GiveUp) -> None:
    """A projection that cannot read on makes every decision of this daemon wrong: stop."""
    try:
        await projection.failed()
    except SpadeError as error:
        give_up(error)


@contextlib.asynccontextmanager
async def _services(settings: Settings) -> AsyncIterator[tuple[Services, Stored[RunStarted]]]:
    """Build the machinery, and take it down in reverse."""
    async with contextlib.AsyncExitStack() as stack:
        bus = await Log.open(settings, name="daemon")
        stack.push_async_callback(bus.close)
        sandbox = await stack.enter_async_context(Sandbox(settings.sandbox, support=support_sources()))
        model = await asyncio.to_thread(ensure_model, settings)
        projection = Projection(bus)
        stack.push_async_callback(projection.stop)
        await projection.start()
        refuse_other_model(projection.state, settings)
        boot = os.environ.get("SPADE_BOOT") or uuid4().hex
        started = await bus.take_epoch(boot, partial(_run_started, settings, boot))
        await projection.wait_for(started.sequence)
        embedder = Embedder.load(settings.memory.embedder)
        stack.callback(embedder.close)
        memory = await Memory.open(settings.run_home() / "memory", await embedder.dimensions())
        stack.push_async_callback(memory.close)
        corpus = await asyncio.to_thread(Corpus.open, settings.home / "corpus.sqlite")
        stack.callback(corpus.close)
        await asyncio.to_thread(corpus.ensure_default)
        chat = await asyncio.to_thread(ChatTokens.load, model)
        policy = await stack.enter_async_context(Policy.connect(settings, chat.stop_ids))
        services = Services(
            settings=settings,
            log=bus,
            projection=projection,
            corpus=corpus,
            memory=memory,
            embedder=embedder,
            sandbox=sandbox,
            model=model,
            chat=chat,
            policy=policy,
            swapper=Swapper(canary_ids(chat), settings.policy.canary_tolerance, partial(_restart, settings)),
            episodes=asyncio.Semaphore(settings.agent.concurrency),
        )
        policy.on_stale = partial(reconcile, services)
        yield services, started


async def _restart(settings: Settings, server: Server) -> None:
    """Restart a policy server whose weights are in doubt: ours through the supervisor, anybody else's not at all."""
    if settings.policy.servers:
        log.error("policy server must be restarted by its operator", server=server.url)
    else:
        await asyncio.to_thread(client(settings).restart, "policy")
    await server.wait_ready(settings.policy.start_timeout)


def refuse_other_model(state: State, settings: Settings) -> None:
    """A run's tokens and weights belong to one model.

    Raises:
        ConfigError: the run was started with another one.
    """
    if state.model and state.model != settings.model.name:
        raise ConfigError(
            f"model.name = {settings.model.name!r}, but run {settings.run!r} was started with {state.model!r}: "
            "choose another run name, or the model it has"
        )


def _run_started(settings: Settings, boot: str, epoch: int) -> RunStarted:
    return RunStarted(
        epoch=epoch,
        boot=boot,
        slots=settings.curriculum.slots,
        model=settings.model.name,
        settings=settings.model_dump(mode="json", exclude={"home", "cache", "nats"}),
    )


async def _subscribe(services: Services, give_up: GiveUp) -> NatsBroker:
    """One durable pull consumer for each reaction, acknowledged by hand."""
    settings = services.settings
    user, password = server.credentials(settings)
    broker = NatsBroker(
        server.url(settings),
        security=SASLPlaintext(user, password) if user is not None and password is not None else None,
        max_reconnect_attempts=-1,
        graceful_timeout=GRACE,
        logger=None,
    )
    stream = JStream(subjects.stream_name(settings.run), declare=False)
    for reaction in REACTIONS:
        workers = settings.curriculum.slots if reaction.concurrent else 1
        delivery = Delivery(
            name=reaction.name,
            react=partial(_react, reaction, services),
            bus=services.log,
            ready=services.projection.wait_for,
            is_fact=partial(_is_fact, services),
            turn_of=partial(_turn_of, services),
            give_up=give_up,
        )
        consumer = ConsumerConfig(
            durable_name=reaction.name,
            filter_subject=subjects.filter_for(settings.run, reaction.event.type),
            ack_policy=NatsAckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            deliver_policy=DeliverPolicy.ALL,
            max_ack_pending=workers,
            max_deliver=-1,
        )
        # The client binds to an existing consumer as it is: here its limits follow the settings.
        await services.log.ensure_consumer(consumer)
        subscriber = broker.subscriber(
            subjects.filter_for(settings.run, reaction.event.type),
            stream=stream,
            durable=reaction.name,
            pull_sub=PullSub(batch_size=1, timeout=5.0),
            config=consumer,
            ack_policy=AckPolicy.MANUAL,
            max_workers=workers,
            decoder=_raw,
        )
        subscriber(_handler(delivery))
    broker.subscriber(live.subject(settings.run))(_live_handler(services))
    await broker.start()
    return broker


def _live_handler(services: Services) -> Callable[[], Awaitable[dict[str, object]]]:
    async def on_question() -> dict[str, object]:
        return live.live_state(services.state).model_dump()

    return on_question


def _handler(delivery: Delivery) -> Callable[[NatsMessage], Awaitable[None]]:
    async def on_message(message: NatsMessage) -> None:
        await delivery(message)

    return on_message


def _is_fact(services: Services, stored: Stored) -> bool:
    return counts(stored.event.epoch, stored.sequence, services.state.starts)


def _turn_of(services: Services, stored: Stored) -> SlotTurn | None:
    """The turn that an event carries, or that its environment's round was played in."""
    data = stored.event.data
    if (turn := getattr(data, "turn", None)) is not None:
        return turn if isinstance(turn, SlotTurn) else None
    environment = services.state.environments.get(getattr(data, "environment", ""))
    round_ = environment.rounds.get(getattr(data, "round", -1)) if environment else None
    return round_.turn if round_ else None


async def _raw(message: NatsMessage) -> bytes:
    return message.body


async def _react(reaction: Reaction, services: Services, stored: Stored) -> None:
    await reaction.handle(stored, services)


__all__ = ["REACTIONS", "run_daemon"]
