"""Where an event stands: ``spade.<run>.<event type>.<key>``. The one place that knows the form of a subject."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.base import Payload
from schemas.events import PAYLOADS

ROOT = "spade"
TOKEN = re.compile(r"[A-Za-z0-9_-]+")
TOKENS = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
FILTER = re.compile(r"([A-Za-z0-9_-]+|\*)(\.([A-Za-z0-9_-]+|\*))*(\.>)?")
TYPE_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Address:
    """What a subject says."""

    run: str
    type: str
    key: str


def stream_name(run: str) -> str:
    """Name of the JetStream stream of ``run``."""
    return f"{ROOT}-{_token(run)}"


def bucket_name(run: str) -> str:
    """Name of the object store bucket that holds the blobs of ``run``."""
    return f"{ROOT}-{_token(run)}-blobs"


def all_of(run: str) -> str:
    """The filter that matches every event of ``run``."""
    return f"{ROOT}.{_token(run)}.>"


def subject(run: str, payload: Payload) -> str:
    """Subject of the fact ``payload``: one subject, one fact.

    Raises:
        ValueError: the run or the key is not made of plain tokens.
    """
    return subject_of(run, payload.type, payload.key())


def subject_of(run: str, event_type: str, key: str) -> str:
    """Subject of the fact of type ``event_type`` (``episode.completed``) under ``key``.

    Raises:
        ValueError: the run or the key is not made of plain tokens.
    """
    if not TOKENS.fullmatch(key):
        raise ValueError(f"key {key!r} of {event_type} is not dot-separated words of [A-Za-z0-9_-]")
    return f"{ROOT}.{_token(run)}.{_type(event_type)}.{key}"


def filter_for(run: str, event_type: str) -> str:
    """The filter that matches every event of one type.

    Raises:
        ValueError: there is no such event type.
    """
    return f"{ROOT}.{_token(run)}.{_type(event_type)}.>"


def filter_under(run: str, pattern: str) -> str:
    """The filter ``pattern`` (tokens, ``*`` and a last ``>``) under ``run``.

    Raises:
        ValueError: it is not a subject filter.
    """
    if not FILTER.fullmatch(pattern):
        raise ValueError(f"{pattern!r} is not a subject filter")
    return f"{ROOT}.{_token(run)}.{pattern}"


def parse(text: str) -> Address:
    """Read a subject back.

    Raises:
        ValueError: it is not the subject of a known event.
    """
    parts = text.split(".")
    if not TOKENS.fullmatch(text) or len(parts) < TYPE_TOKENS + 3 or parts[0] != ROOT:
        raise ValueError(f"{text!r} is not the subject of an event")
    return Address(parts[1], _type(".".join(parts[2 : 2 + TYPE_TOKENS])), ".".join(parts[2 + TYPE_TOKENS :]))


def _token(text: str) -> str:
    if not TOKEN.fullmatch(text):
        raise ValueError(f"{text!r} is not a plain token of [A-Za-z0-9_-]")
    return text


def _type(text: str) -> str:
    if text not in PAYLOADS:
        raise ValueError(f"{text!r} is not a known event type")
    return text
