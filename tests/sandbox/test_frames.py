"""The reader of a worker's frames against honest, careless and hostile bytes."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.sandbox import frames
from spade_daemon.sandbox.frames import FrameError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(JSON)
def test_what_is_sent_is_what_is_read(value: frames.JsonValue) -> None:
    frame = frames.encode({"value": value})
    assert frames.payload_length(frame[:4]) == len(frame) - 4
    assert frames.decode(frame[4:]) == {"value": value}


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    try:
        value = frames.decode(payload)
    except FrameError:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@given(JSON)
def test_any_value_is_an_answer_or_refused(value: frames.JsonValue) -> None:
    payload = json.dumps(value).encode()
    with pytest.raises(FrameError):
        frames.answer(payload, 3, "nonce")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{]}",
        b"\xff\xfe",
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b"9223372036854775808",
        b"1" * 6_000,
        b'{"a":1,"a":2}',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b"[" * 100 + b"]" * 100,
        b"[" * 100_000,
    ],
    ids=range(13),
)
def test_bad_text_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        frames.decode(payload)


@pytest.mark.parametrize("length", [0, frames.MAX_FRAME + 1, 0xFFFFFFFF])
def test_bad_lengths_are_refused(length: int) -> None:
    with pytest.raises(FrameError):
        frames.payload_length(struct.pack(">I", length))


@pytest.mark.parametrize(
    "reply",
    [
        {"id": 3, "nonce": "other", "ok": {}},
        {"id": 2, "nonce": "nonce", "ok": {}},
        {"id": True, "nonce": "nonce", "ok": {}},
        {"id": 3.0, "nonce": "nonce", "ok": {}},
        {"id": 3, "nonce": "nonce"},
        {"id": 3, "nonce": "nonce", "fine": {}},
        {"id": 3, "nonce": "nonce", "ok": {}, "crash": ""},
        [3, "nonce", {}],
    ],
)
def test_only_the_asked_reply_is_an_answer(reply: frames.JsonValue) -> None:
    with pytest.raises(FrameError):
        frames.answer(json.dumps(reply).encode(), 3, "nonce")


def test_an_answer() -> None:
    assert frames.answer(b'{"id":3,"nonce":"nonce","crash":"why"}', 3, "nonce") == ("crash", "why")


@given(st.text())
def test_printable_text_is_one_short_printable_line(text: str) -> None:
    shown = frames.printable(text, 50)
    assert shown.isprintable()
    assert len(shown.encode()) <= 50
    if text.isascii() and text.isprintable() and len(text) <= 50:
        assert shown == text


def test_printable_escapes_terminal_codes() -> None:
    assert frames.printable("\x1b[2J\n") == "\\x1b[2J\\n"
    assert frames.printable(["x"]) == "(no text)"
