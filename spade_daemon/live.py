"""Asking a running daemon what it believes: the digest of its own state, over core NATS, outside the log."""

from __future__ import annotations

import asyncio

import nats
from nats.errors import Error as NatsError
from pydantic import ValidationError

from schemas.base import Record
from spade_daemon.log import server
from spade_daemon.log.state import State
from spade_daemon.settings import Settings

CONNECT_SECONDS = 2.0


class LiveState(Record):
    """A daemon's own state in short."""

    sequence: int
    epoch: int
    digest: str


def subject(run: str) -> str:
    """Where the daemons of a run answer; outside the stream's subjects."""
    return f"spade-live.{run}.state"


def live_state(state: State) -> LiveState:
    """What a daemon answers."""
    return LiveState(sequence=state.sequence, epoch=state.epoch, digest=state.digest())


async def ask(settings: Settings, timeout: float = 10.0) -> LiveState | None:
    """The state of whichever daemon answers first; ``None`` when none runs."""
    user, password = server.credentials(settings)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):  # the client's own patience with an absent server is two minutes
            connection = await nats.connect(
                server.url(settings), user=user, password=password, allow_reconnect=False, error_cb=_ignore
            )
    except (TimeoutError, NatsError, OSError):
        return None
    try:
        answer = await connection.request(subject(settings.run), b"", timeout=timeout)
        return LiveState.model_validate_json(answer.data)
    except (TimeoutError, NatsError, ValidationError):
        return None
    finally:
        await connection.close()


async def _ignore(_: Exception) -> None:
    """A server that is away is an answer here, not an error to print."""
