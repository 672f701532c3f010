"""The envelope and the wire: what is written is what is read, by this version and by later ones."""

from __future__ import annotations

from typing import Any, ClassVar

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import events as all_events
from schemas.base import Payload
from schemas.event import Event, UnreadableEvent, decode
from schemas.events import PAYLOADS, RunStopped
from schemas.upcast import UPCASTERS
from tests.strategies import events, models

BODY: dict[str, Any] = {
    "id": "a1",
    "type": "run.stopped",
    "version": 1,
    "run": "main",
    "epoch": 1,
    "time": "2026-01-02T03:04:05.000006Z",
    "key": "1",
    "causation": None,
    "correlation": None,
    "data": {"epoch": 1, "reason": "asked"},
}


def body(**changes: Any) -> bytes:
    return orjson.dumps(BODY | changes)


@pytest.mark.parametrize("name", sorted(PAYLOADS))
@given(data=st.data())
def test_every_event_reads_back_as_it_was_written(name: str, data: st.DataObject) -> None:
    event = data.draw(events(models(PAYLOADS[name])))
    again = decode(event.encode())
    assert again == event
    assert type(again.data) is PAYLOADS[name]
    assert again.encode() == event.encode()


def test_every_payload_class_is_registered() -> None:
    classes = {
        value
        for value in vars(all_events).values()
        if isinstance(value, type) and issubclass(value, Payload) and value is not Payload
    }
    assert set(PAYLOADS.values()) == classes


def test_the_canonical_form_does_not_depend_on_the_order_of_fields() -> None:
    backwards = orjson.dumps(dict(reversed(BODY.items())))
    assert decode(backwards).encode() == decode(body()).encode()


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnreadableEvent, match=r"unknown event type 'run\.paused'.*upgrade"):
        decode(body(type="run.paused"))


def test_a_newer_version_is_named() -> None:
    with pytest.raises(UnreadableEvent, match=r"'run\.stopped' has schema version 2, this program reads up to 1"):
        decode(body(version=2))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"null", b'{"type": "run.stopped"}'])
def test_what_is_no_event_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableEvent, match="not an event"):
        decode(content)


@pytest.mark.parametrize(
    "changes",
    [
        {"surprise": 1},
        {"data": {"epoch": 1, "reason": "asked", "surprise": 1}},
        {"data": {"epoch": 1}},
        {"data": {"epoch": "soon", "reason": "asked"}},
        {"data": None},
        {"epoch": -1},
        {"version": 0},
        {"time": "yesterday"},
    ],
)
def test_fields_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnreadableEvent):
        decode(body(**changes))


@given(content=st.binary(max_size=200))
def test_no_bytes_raise_anything_else(content: bytes) -> None:
    with pytest.raises(UnreadableEvent):
        decode(content)


class RunStoppedLater(RunStopped):
    """``run.stopped`` as two versions later might have it."""

    type: ClassVar[str] = "run.stopped"
    version: ClassVar[int] = 3
    by: str
    graceful: bool


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAYLOADS, "run.stopped", RunStoppedLater)
    monkeypatch.setitem(UPCASTERS, ("run.stopped", 1), lambda data: data | {"by": "unknown"})


@pytest.mark.usefixtures("later")
def test_an_older_event_is_upcast_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UPCASTERS, ("run.stopped", 2), lambda data: data | {"graceful": data["by"] != "kernel"})
    event: Event[Payload] = decode(body())
    assert event.data == RunStoppedLater(epoch=1, reason="asked", by="unknown", graceful=True)
    assert event.version == 3
    second = decode(body(version=2, data={"epoch": 1, "reason": "asked", "by": "kernel"}))
    assert second.data == RunStoppedLater(epoch=1, reason="asked", by="kernel", graceful=False)


@pytest.mark.usefixtures("later")
def test_a_missing_upcaster_is_an_error_with_the_event_in_it() -> None:
    with pytest.raises(UnreadableEvent, match=r"run\.stopped"):
        decode(body())
