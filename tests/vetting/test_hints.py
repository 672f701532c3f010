"""Hints: tidied, and searched for literal answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.envs.support.spade_env import DONE, call
from spade_daemon.vetting.hints import clean_hint, hint_leak

SHOWN = "Dig up two chests. Actions: \\boxed{dig N}, \\boxed{north}, \\boxed{south}"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("<think>dig 7</think>\nHINT: Halve the range.", "Halve the range."),
        ("```\nHalve the\n  range.\n```", "Halve the range."),
        ('"Halve the range."', "Halve the range."),
        ("**Hint:** Halve the range.", "Halve the range."),
        ("One two. Three four five six seven eight nine ten.", "One two."),
        ("one two three four five six seven eight nine", "one two three four five six seven eight"),
        (" \n", ""),
    ],
)
def test_a_hint_is_one_short_paragraph(text: str, hint: str) -> None:
    assert clean_hint(text, 8) == hint


@given(st.text(), st.integers(1, 30))
def test_cleaning_keeps_the_limit_and_repeats_itself(text: str, limit: int) -> None:
    hint = clean_hint(text, limit)
    assert len(hint.split()) <= limit
    assert "\n" not in hint


@pytest.mark.parametrize(
    ("hint", "actions"),
    [
        ("First dig 7, then look.", ["\\boxed{dig 7}", "\\boxed{dig 9}"]),
        ("Send \\boxed{Dig 7} now.", ["\\boxed{dig 7}", "\\boxed{dig 9}"]),
        ("The chest is at place 47.", ["\\boxed{dig 47}", "\\boxed{dig 9}"]),
        ("Go north, north, south.", ["\\boxed{north}", "\\boxed{north}", "\\boxed{south}"]),
        ("The order is O123.", [call("cancel", order="O123"), DONE]),
        ("one two three four five six seven eight", ["\\boxed{zero one two three four five six seven eight nine}"]),
    ],
)
def test_literal_answers_are_leaks(hint: str, actions: list[str]) -> None:
    assert hint_leak(hint, actions, SHOWN)


@pytest.mark.parametrize(
    ("hint", "actions"),
    [
        ("Halve the range each time; dig in the middle.", ["\\boxed{dig 7}", "\\boxed{dig 9}"]),
        ("Use north or south until it gets warmer.", ["\\boxed{south}", "\\boxed{north}"]),
        ("Cancel the order that is late, then say done.", [call("cancel", order="O123"), DONE]),
        ("Look at 17 places.", ["\\boxed{dig 7}", "\\boxed{dig 1}"]),
        ("", ["\\boxed{dig 7}"]),
        ("Anything.", []),
        ("Anything.", ["", "\\boxed{}"]),
    ],
)
def test_advice_is_no_leak(hint: str, actions: list[str]) -> None:
    assert hint_leak(hint, actions, SHOWN) is None


@given(st.text(), st.lists(st.text(), max_size=5), st.text())
def test_any_text_gets_an_answer(hint: str, actions: list[str], observation: str) -> None:
    found = hint_leak(hint, actions, observation)
    assert found is None or "\n" not in found
