"""Frames of a worker's connection as the daemon sees them. Pure; every byte from a worker is hostile.

A frame is a 4-byte big-endian length and that many bytes of JSON.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import NoReturn

from pydantic import JsonValue

HEADER = struct.Struct(">I")
MAX_FRAME = 256 << 10
MAX_DEPTH = 32
MAX_INTEGER = 1 << 63
ANSWERS = ("ok", "invalid", "crash")


class FrameError(Exception):
    """A worker sent what the protocol does not allow: it must be killed. The text is ours, not the worker's."""


def encode(message: Mapping[str, JsonValue]) -> bytes:
    """One frame to send."""
    payload = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return HEADER.pack(len(payload)) + payload


def payload_length(header: bytes) -> int:
    """How many bytes follow these four.

    Raises:
        FrameError: more than any honest reply has.
    """
    (length,) = HEADER.unpack(header)
    if not 0 < length <= MAX_FRAME:
        raise FrameError(f"announced a reply of {length} bytes, at most {MAX_FRAME} are allowed")
    return int(length)


def decode(payload: bytes) -> JsonValue:
    """Parse one frame strictly.

    Raises:
        FrameError: not JSON, a repeated key, not finite, too deep, an integer of more than 64 bits, or a string that
            cannot be stored as UTF-8.
    """
    try:
        value = json.loads(payload.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"sent no JSON: {type(error).__name__}") from error
    _check(value, MAX_DEPTH)
    return value  # type: ignore[no-any-return]


def answer(payload: bytes, identity: int, nonce: str) -> tuple[str, JsonValue]:
    """The one reply to the request ``(identity, nonce)``.

    Returns:
        ``ok``, ``invalid`` or ``crash``, and what came with it.

    Raises:
        FrameError: anything else.
    """
    value = decode(payload)
    if not isinstance(value, dict) or len(value) != 3:
        raise FrameError("sent a reply of another shape")
    if type(value.get("id")) is not int or value["id"] != identity or value.get("nonce") != nonce:
        raise FrameError("answered a request nobody made")
    for kind in ANSWERS:
        if kind in value:
            return kind, value[kind]
    raise FrameError("sent a reply of an unknown kind")


def printable(text: JsonValue, limit: int = 2_000) -> str:
    """Text of a worker made fit for logs and terminals: short, one line, control characters escaped."""
    if not isinstance(text, str):
        return "(no text)"
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    escaped = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in short)
    return escaped.encode()[:limit].decode(errors="ignore")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key is repeated")
    return unique


def _check(value: JsonValue, depth: int) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise FrameError("sent text that is not UTF-8") from None
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value < MAX_INTEGER:
            raise FrameError("sent an integer of more than 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise FrameError("sent a number that is not finite")
    elif depth == 0:
        raise FrameError(f"sent a value nested more than {MAX_DEPTH} deep")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth - 1)
            _check(item, depth - 1)
    else:
        for item in value:
            _check(item, depth - 1)
