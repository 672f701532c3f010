"""The trainer as a process: connections, signals, and what a person is told when it cannot go on."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal

import structlog

from schemas.events import IncidentRaised
from spade_daemon.errors import CheckpointError, ConfigError
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.policy.canary import canary_ids
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.policy.models import ensure_model
from spade_daemon.settings import Settings
from spade_daemon.trainer.loop import Stop, Trainer

log = structlog.get_logger()

JOIN_TIMEOUT = 600.0
"""How long the daemon may take to start the run: it waits for the model first."""


async def run_trainer(settings: Settings) -> None:
    """Train until SIGTERM or SIGINT. After ``trainer.max_checkpoints`` it only waits: a supervisor would restart it.

    Raises:
        SpadeError: one line that says what to do; a checkpoint's trouble is also an incident in the log.
    """
    if settings.trainer.processes != 1:
        raise ConfigError(f"trainer.processes is {settings.trainer.processes}: only 1 is supported yet")
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    bus = await Log.open(settings, name="trainer")
    projection = Projection(bus)
    try:
        await bus.join_epoch(os.environ.get("SPADE_BOOT"), timeout=JOIN_TIMEOUT)
        await projection.start()
        base = await asyncio.to_thread(ensure_model, settings)
        canary = canary_ids(await asyncio.to_thread(ChatTokens.load, base))
        await Trainer(bus, projection, settings, base, canary, stop).run()
        if not stop.asked.is_set():
            log.info("training is complete", policy=projection.state.version)
            await stop.asked.wait()
    except CheckpointError as error:
        await _raise_incident(bus, error)
        raise
    finally:
        await projection.stop()
        await bus.close()


async def _raise_incident(bus: Log, error: CheckpointError) -> None:
    """Make the trouble a fact, once: a trainer that is restarted again and again says the same with other figures."""
    kind = re.sub(r"[0-9.]+", "", str(error))
    identity = hashlib.sha256(f"{bus.epoch} {kind}".encode()).hexdigest()[:16]
    await bus.append(
        IncidentRaised(
            incident=identity,
            source="trainer",
            message=str(error),
            remedy="training stands still until this is repaired; the daemon goes on playing",
        )
    )
