from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Payload
from schemas.events import PAYLOADS, IncidentRaised
from spade_daemon.log import subjects
from tests.strategies import keys, payloads, words


@given(run=words, payload=payloads)
def test_a_subject_says_run_type_and_key(run: str, payload: Payload) -> None:
    address = subjects.parse(subjects.subject(run, payload))
    assert address == subjects.Address(run, payload.type, payload.key())


@given(run=words, name=st.sampled_from(sorted(PAYLOADS)), key=keys)
def test_parse_is_the_inverse_of_subject_of(run: str, name: str, key: str) -> None:
    text = subjects.subject_of(run, name, key)
    assert subjects.parse(text) == subjects.Address(run, name, key)
    assert matches(subjects.filter_for(run, name), text)
    assert matches(subjects.all_of(run), text)


@given(
    one=st.tuples(words, st.sampled_from(sorted(PAYLOADS)), keys),
    two=st.tuples(words, st.sampled_from(sorted(PAYLOADS)), keys),
)
def test_different_facts_have_different_subjects(one: tuple[str, str, str], two: tuple[str, str, str]) -> None:
    assert (one == two) == (subjects.subject_of(*one) == subjects.subject_of(*two))


@given(text=st.text(max_size=40))
def test_parse_refuses_or_gives_the_text_back(text: str) -> None:
    try:
        address = subjects.parse(text)
    except ValueError:
        return
    assert subjects.subject_of(address.run, address.type, address.key) == text


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b", "a b", "*", ">", "a.*", "ä", "a\n", "a/b"])
def test_a_key_of_anything_but_plain_tokens_is_refused(key: str) -> None:
    payload = IncidentRaised(incident=key, source="", message="", remedy="")
    with pytest.raises(ValueError, match="key"):
        subjects.subject("main", payload)


@pytest.mark.parametrize("run", ["", "a.b", "*", ">", "a b", "a\n"])
def test_a_run_is_one_token(run: str) -> None:
    for make in (subjects.stream_name, subjects.bucket_name, subjects.all_of):
        with pytest.raises(ValueError, match="token"):
            make(run)


@pytest.mark.parametrize(
    "text",
    [
        "spade.main.run.started",
        "other.main.run.started.1",
        "spade.main.no.event.1",
        "spade.main.run.started.",
        "",
        "spade",
    ],
)
def test_what_is_no_subject_of_an_event_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"subject|type"):
        subjects.parse(text)


def test_filters() -> None:
    assert subjects.filter_under("main", "*.*.s0.17") == "spade.main.*.*.s0.17"
    assert subjects.filter_under("main", "run.>") == "spade.main.run.>"
    for wrong in ("", ">.a", "a*", "a..b", "a.>.b"):
        with pytest.raises(ValueError, match="filter"):
            subjects.filter_under("main", wrong)
    with pytest.raises(ValueError, match="event type"):
        subjects.filter_for("main", "no.event")


def matches(pattern: str, text: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern.removesuffix(">") + "*")
