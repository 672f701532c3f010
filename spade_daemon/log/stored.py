"""An event as the log holds it, its form on the wire, and whether it counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Generic
from uuid import uuid4

from typing_extensions import TypeVar

from schemas.base import Payload
from schemas.event import Event, UnreadableEvent, decode
from schemas.events import DocumentSampled, EnvironmentReplayed, RunStarted
from spade_daemon.errors import LogError
from spade_daemon.log import subjects

DIGEST = "Spade-Digest"
MESSAGE_ID = "Nats-Msg-Id"
P = TypeVar("P", bound=Payload, covariant=True, default=Payload)
BEGINNINGS = (RunStarted, DocumentSampled, EnvironmentReplayed)
"""Events that begin a line of work: they are their own correlation."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[P]):
    """An event and its place in the log."""

    sequence: int
    event: Event[P]
    won: bool = True
    """``False``: another writer's (or our own earlier) event is the fact, and this is it."""


def make_event(
    payload: Payload, *, run: str, epoch: int, time: datetime, cause: Stored | Event[Payload] | None
) -> Event[Payload]:
    """Put ``payload`` in its envelope, with a new random id."""
    identity = uuid4().hex
    source = cause.event if isinstance(cause, Stored) else cause
    inherited = source.correlation if source else None
    return Event[Payload](
        id=identity,
        type=payload.type,
        version=payload.version,
        run=run,
        epoch=epoch,
        time=time,
        key=payload.key(),
        causation=source.id if source else None,
        correlation=identity if isinstance(payload, BEGINNINGS) else inherited,
        data=payload,
    )


def digest(body: bytes) -> str:
    """Digest of an event's bytes, as its header carries it."""
    return sha256(body).hexdigest()


def unpack(sequence: int, subject: str, headers: Mapping[str, str] | None, body: bytes) -> Stored[Any]:
    """Read a message of the stream, and prove that it is what was written.

    Raises:
        LogError: the digest does not fit, or the event stands under a foreign subject.
        UnreadableEvent: the content is intact, but this program cannot read it.
    """
    expected = (headers or {}).get(DIGEST)
    if expected != digest(body):
        raise LogError(
            f"event {sequence} ({subject}) does not fit its digest: the log is damaged or was written by "
            "another program; restore the store from a copy"
        )
    try:
        event = decode(body)
    except UnreadableEvent as error:
        raise UnreadableEvent(f"event {sequence} ({subject}): {error}") from error
    address = f"{subjects.ROOT}.{event.run}.{event.type}.{event.key}"
    if address != subject:
        raise LogError(f"event {sequence} says {address} but stands under {subject}: the log is damaged")
    return Stored(sequence, event)


def counts(epoch: int, sequence: int, starts: Mapping[int, int]) -> bool:
    """Whether an event of ``epoch`` at ``sequence`` is a fact.

    It is unless a newer epoch was in force there, that is, unless the ``run.started`` of a newer one stands at or
    before it. What an older epoch still appends is stale and counts for nobody.

    Args:
        epoch: epoch that the event carries.
        sequence: its place in the stream.
        starts: epoch -> sequence of its ``run.started``, at least up to ``sequence``.
    """
    return not any(started > epoch and place <= sequence for started, place in starts.items())
