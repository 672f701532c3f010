"""How a fact is written: the first writer wins, for ever, and every retry finds out what it did before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from nats.js.errors import NotFoundError

from schemas.base import Payload
from schemas.event import Event
from spade_daemon.errors import LogError
from spade_daemon.log import subjects
from spade_daemon.log.connection import Connection, Refused
from spade_daemon.log.stored import DIGEST, MESSAGE_ID, Stored, digest, unpack

MAX_BATCH = 1000
"""Most events of one atomic batch; the server's limit."""
WRONG_LAST_SEQUENCE = 10071
DUPLICATE_IN_BATCH = 10201
ALREADY_THERE = (WRONG_LAST_SEQUENCE, DUPLICATE_IN_BATCH)
BATCH_ABANDONED = (10176, 10210, 10211)
"""The server lost or did not take a part of the batch: nothing of it was stored, and trying again may help."""


class Writer:
    """Publishes events to the stream of one run."""

    def __init__(self, connection: Connection, run: str) -> None:
        self._connection = connection
        self._run = run
        self._stream = subjects.stream_name(run)

    async def last(self, subject_filter: str) -> Stored[Any] | None:
        """The last event under a subject or filter."""
        return await self._get(subject=subject_filter)

    async def at(self, sequence: int) -> Stored[Any] | None:
        """The event at ``sequence``."""
        return await self._get(seq=sequence)

    async def _get(self, **which: str | int) -> Stored[Any] | None:
        async def get() -> Stored[Any] | None:
            try:
                raw = await self._connection.js.get_msg(self._stream, **which)
            except NotFoundError:
                return None
            return unpack(raw.seq, raw.subject, raw.headers, raw.data or b"")

        return await self._connection.patiently(f"reading the event of {which}", get)

    async def publish(self, event: Event[Payload], after: int, scope: str | None) -> Stored | None:
        """Append ``event`` if the last event of its subject (or of the filter ``scope``) is ``after`` (0: none).

        Returns:
            The stored event, also when an earlier try of ours had stored it; ``None`` if another one stands there.

        Raises:
            LogError: the server refuses, or it stays uncertain what happened.
        """
        subject, body = subjects.subject(self._run, event.data), event.encode()
        headers = self._headers(event, body, after)
        if scope is not None:
            headers["Nats-Expected-Last-Subject-Sequence-Subject"] = scope

        async def attempt() -> Stored | None:
            try:
                answer = await self._connection.request(subject, body, headers)
            except Refused as refusal:
                if refusal.code != WRONG_LAST_SEQUENCE:
                    raise LogError(f"{subject} was refused: {refusal}") from refusal
                return None
            return Stored(int(answer["seq"]), event)

        return await self._connection.patiently(f"appending {subject}", attempt)

    async def publish_batch(self, events: Sequence[Event[Payload]]) -> list[Stored] | None:
        """Append all ``events`` or none, each the first of its subject.

        Returns:
            The stored events; ``None`` if some subject is taken (perhaps by an earlier try of this very batch).

        Raises:
            LogError: the server refuses, or it stays uncertain what happened.
        """

        async def attempt() -> list[Stored] | None:
            try:
                return await self._send_batch(events)
            except Refused as refusal:
                if refusal.code in ALREADY_THERE:
                    return None
                if refusal.code in BATCH_ABANDONED:
                    raise TimeoutError(str(refusal)) from refusal
                raise LogError(f"a batch of {len(events)} events was refused: {refusal}") from refusal

        return await self._connection.patiently(f"appending a batch of {len(events)} events", attempt)

    async def _send_batch(self, events: Sequence[Event[Payload]]) -> list[Stored]:
        batch = uuid4().hex
        first, last = 1, len(events)
        answer = {}
        for number, event in enumerate(events, start=1):
            body = event.encode()
            subject = subjects.subject(self._run, event.data)
            headers = self._headers(event, body, after=0)
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number == last:
                headers["Nats-Batch-Commit"] = "1"
            if number in (first, last):
                answer = await self._connection.request(subject, body, headers)
            else:
                await self._connection.nats.publish(subject, body, headers=headers)
        end = int(answer["seq"])
        return [Stored(end - last + number, event) for number, event in enumerate(events, start=1)]

    def _headers(self, event: Event[Payload], body: bytes, after: int) -> dict[str, str]:
        return {
            MESSAGE_ID: event.id,
            DIGEST: digest(body),
            "Nats-Expected-Stream": self._stream,
            "Nats-Expected-Last-Subject-Sequence": str(after),
        }
