from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Payload
from schemas.event import Event, UnreadableEvent
from spade_daemon.errors import LogError
from spade_daemon.log import subjects
from spade_daemon.log.stored import DIGEST, Stored, counts, digest, make_event, unpack
from tests.log.facts import document, incident, replay, starting
from tests.strategies import events

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def made(payload: Payload, cause: Stored | Event[Payload] | None = None) -> Event[Payload]:
    return make_event(payload, run="main", epoch=1, time=NOW, cause=cause)


@given(history=st.lists(st.booleans(), max_size=12), data=st.data())
def test_an_event_counts_until_a_newer_epoch_has_begun(history: list[bool], data: st.DataObject) -> None:
    """Against a model: walk the log, where True is the start of the next epoch."""
    starts: dict[int, int] = {}
    in_force = []
    for sequence, begins in enumerate(history, start=1):
        if begins:
            starts[len(starts) + 1] = sequence
        in_force.append(len(starts))
    for sequence, newest in enumerate(in_force, start=1):
        epoch = data.draw(st.integers(0, newest))
        assert counts(epoch, sequence, starts) == (epoch == newest)


def test_a_start_counts_and_what_stood_before_it_still_counts() -> None:
    starts = {1: 1, 2: 10}
    assert counts(2, 10, starts)
    assert counts(1, 9, starts)
    assert not counts(1, 11, starts)
    assert not counts(0, 5, starts)
    assert counts(0, 1, {})


def test_an_effect_names_its_cause_and_keeps_the_line_of_work() -> None:
    began = made(document(0, 1))
    assert began.correlation == began.id
    assert began.causation is None
    effect = made(incident("a"), Stored(7, began))
    assert (effect.causation, effect.correlation) == (began.id, began.id)
    second = made(incident("b"), effect)
    assert (second.causation, second.correlation) == (effect.id, began.id)
    assert len({began.id, effect.id, second.id}) == 3


@pytest.mark.parametrize("payload", [document(0, 2), replay(0, 2), starting("x")(2)])
def test_a_new_turn_begins_a_new_line_of_work(payload: Payload) -> None:
    before = made(document(0, 1))
    event = made(payload, before)
    assert event.causation == before.id
    assert event.correlation == event.id


def test_an_event_without_a_cause_has_no_line_of_work() -> None:
    event = made(incident("a"))
    assert (event.causation, event.correlation) == (None, None)


@given(event=events())
def test_unpack_gives_back_what_was_packed(event: Event[Payload]) -> None:
    body = event.encode()
    subject = subjects.subject(event.run, event.data)
    assert unpack(3, subject, {DIGEST: digest(body)}, body) == Stored(3, event)


@given(event=events(), data=st.data())
def test_one_flipped_bit_anywhere_is_found(event: Event[Payload], data: st.DataObject) -> None:
    body = event.encode()
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    damaged = bytearray(body)
    damaged[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(LogError, match=r"event 3 .*digest"):
        unpack(3, subjects.subject(event.run, event.data), {DIGEST: digest(body)}, bytes(damaged))


def test_a_message_without_a_digest_is_foreign() -> None:
    event = made(incident("a"))
    for headers in (None, {}, {"Other": "x"}):
        with pytest.raises(LogError, match="digest"):
            unpack(1, "spade.main.incident.raised.a", headers, event.encode())


def test_an_event_under_a_foreign_subject_is_refused() -> None:
    body = made(incident("a")).encode()
    with pytest.raises(LogError, match=r"incident\.raised\.a but stands under"):
        unpack(1, "spade.main.incident.raised.b", {DIGEST: digest(body)}, body)


def test_an_intact_event_of_another_version_is_named_with_its_place() -> None:
    body = b'{"type": "run.paused", "version": 1}'
    with pytest.raises(UnreadableEvent, match=r"event 5 .*run\.paused"):
        unpack(5, "spade.main.run.paused.1", {DIGEST: digest(body)}, body)
