"""The envelope: who, when, why around a payload; and its form on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import orjson
from pydantic import Field, SerializeAsAny, ValidationError

from schemas.base import Payload, Record
from schemas.events import PAYLOADS
from schemas.upcast import upcast

P = TypeVar("P", bound=Payload, covariant=True)


class UnreadableEvent(ValueError):
    """An event that this program cannot read: its message says which and what to do."""


class Event(Record, Generic[P]):
    """One fact of the log."""

    id: str
    type: str
    version: int = Field(ge=1)
    run: str
    epoch: int = Field(ge=0)
    time: datetime
    key: str
    causation: str | None
    """Id of the event that this one answers."""
    correlation: str | None
    """Id of the event with which this line of work began (the sampled document)."""
    data: SerializeAsAny[P]

    def encode(self) -> bytes:
        """Canonical JSON: sorted keys, so that equal events have equal bytes and digests."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)


def decode(body: bytes) -> Event[Payload]:
    """Read an event; older schema versions are upcast.

    Raises:
        UnreadableEvent: not JSON, an unknown type, a newer schema version, or fields that do not fit.
    """
    try:
        raw: dict[str, Any] = orjson.loads(body)
        type_, version = str(raw["type"]), int(raw["version"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableEvent(f"not an event: {error!r}; the log holds foreign or damaged data") from error
    payload = PAYLOADS.get(type_)
    if payload is None:
        raise UnreadableEvent(
            f"unknown event type {type_!r}: it was written by another version of spade-daemon; upgrade"
        )
    if version > payload.version:
        raise UnreadableEvent(
            f"event {type_!r} has schema version {version}, this program reads up to {payload.version}; upgrade"
        )
    try:
        if version < payload.version:
            raw = raw | {"data": upcast(type_, version, payload.version, raw["data"]), "version": payload.version}
        return Event[Payload](**(raw | {"data": payload.model_validate(raw["data"])}))
    except (ValidationError, KeyError) as error:
        raise UnreadableEvent(f"event {type_!r} {raw.get('id')!r} does not fit its schema: {error}") from error
