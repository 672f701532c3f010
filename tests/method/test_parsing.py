"""Parsing what a model wrote: exact cases, and anything at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.words import DesignFailure
from spade_daemon.method.parsing import fences, hint_text, parse_design, without_thoughts

CODE = "class CoinEnv:\n    pass\n"
LIMIT = 64_000
PIECES = [
    "```", "```python", "````", "~~~", "<think>", "</think>", "</THINKING>", "\n", "\r\n", "class A:", "\x00", "\ud800",
    "{", "}", '"hint"', "Hint:", " ", "\u2028", "x" * 40, "`", "\\boxed{", "<|im_end|>",
]  # fmt: skip
soup = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=60).map("".join)


def fenced(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}```\n"


def parse(reply: str, cut: bool = False, limit: int = LIMIT) -> object:
    parsed = parse_design(reply, cut=cut, max_bytes=limit)
    return parsed.code if parsed.failure is None else parsed.failure


@pytest.mark.parametrize("language", ["python", "Python", "py", "python3", ""])
def test_a_complete_fence(language: str) -> None:
    assert parse("Here it is.\n" + fenced(CODE, language) + "Enjoy.") == CODE


def test_the_last_complete_fence_counts() -> None:
    assert parse(fenced("draft = 1\n") + fenced(CODE) + fenced("{}", "json")) == CODE


def test_a_fence_within_a_thought_is_no_answer() -> None:
    draft = fenced("class DraftEnv: ...\n")
    assert parse(f"<think>{draft}</think>\n{fenced(CODE)}") == CODE
    assert parse(f"{draft}</think>") is DesignFailure.EMPTY
    assert parse(f"<think>\n{draft}") is DesignFailure.EMPTY
    assert parse(f"<think>a</think> b <think>{draft}</think>c") is DesignFailure.NO_CODE


def test_a_draft_that_was_never_closed_does_not_swallow_the_answer() -> None:
    assert parse("```python\nx = 1\nWait, again:\n" + fenced(CODE)) == CODE


def test_an_earlier_complete_fence_survives_a_later_cut() -> None:
    reply = fenced(CODE) + "```python\nclass Other"
    assert parse(reply) == CODE
    assert parse(reply, cut=True) == CODE


@pytest.mark.parametrize(
    ("reply", "cut", "failure"),
    [
        ("", False, DesignFailure.EMPTY),
        (" \n\t", True, DesignFailure.EMPTY),
        ("I would rather not.", False, DesignFailure.NO_CODE),
        ("```\nno definition here\n```", False, DesignFailure.NO_CODE),
        ("```json\nclass A: ...\n```", False, DesignFailure.NO_CODE),
        ("```python\n  \n```", False, DesignFailure.NO_CODE),
        ("```python\n" + CODE, False, DesignFailure.UNTERMINATED),
        ("```python\n" + CODE, True, DesignFailure.CUT),
        ("<think>still thinking", True, DesignFailure.CUT),
        ("```python\nreturn 1```", False, DesignFailure.UNTERMINATED),
    ],
)
def test_failures_have_names(reply: str, cut: bool, failure: DesignFailure) -> None:
    assert parse(reply, cut) is failure


def test_the_size_limit_is_in_bytes() -> None:
    code = "s = '" + "ä" * 100 + "'\n"
    size = len(code.encode())
    assert parse(fenced(code), limit=size) == code
    assert parse(fenced(code), limit=size - 1) is DesignFailure.TOO_LARGE


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    inner = 'DOC = """\n```\n"""\n'
    assert parse("````python\n" + inner + "````\n") == inner


def test_line_ends_and_lone_surrogates_are_made_storable() -> None:
    code = parse("```python\r\nx = '\ud800'\r\n```\r\n")
    assert code == "x = '?'\n"


@given(soup, st.booleans(), st.integers(0, 200))
def test_any_reply_gives_code_or_a_reason(reply: str, cut: bool, limit: int) -> None:
    parsed = parse_design(reply, cut=cut, max_bytes=limit)
    assert (parsed.code is None) != (parsed.failure is None)
    if parsed.code is not None:
        assert len(parsed.code.encode("utf-8")) <= limit
        assert parsed.code.strip()


@given(soup)
def test_code_written_last_is_found_whatever_stands_before(noise: str) -> None:
    assert parse(noise + "</think>\n" + fenced(CODE)) == CODE


@given(soup)
def test_no_thought_survives(reply: str) -> None:
    assert "</think>" not in without_thoughts(reply).lower()


@given(soup)
def test_at_most_the_last_fence_is_incomplete_unless_another_began(text: str) -> None:
    found = list(fences(text))
    assert sum(not fence.complete for fence in found) <= text.count("```")


@pytest.mark.parametrize(
    "unit",
    [
        "`",
        "``` ",
        "```",
        "```\n",
        "```python\n",
        "</think",
        "</think ",
        " ",
        "<think>",
        "\n",
        "{",
        "class ",
        "``` a`",
        "\x00",
    ],
)
def test_a_megabyte_of_anything_is_parsed(unit: str) -> None:
    """Quadratic work would take hours at this size and run into the suite's time limit."""
    reply = "```" + unit * ((1 << 20) // len(unit)) + "`"
    parsed = parse_design(reply, cut=False, max_bytes=LIMIT)
    assert (parsed.code is None) != (parsed.failure is None)
    assert len(hint_text(reply, 50).split()) <= 50


@pytest.mark.parametrize(
    ("reply", "hint"),
    [
        ("Count from the end.", "Count from the end."),
        ("<think>secret</think>\nHint: Count  from\nthe end.", "Count from the end."),
        ('"Count from the end."', "Count from the end."),
        ('**Hint:** "Count from the end."', "Count from the end."),
        ("\u201cHINT: Count from the end.\u201d", "Count from the end."),
        ("```text\nCount from the end.\n```", "Count from the end."),
        ('```json\n{"hint": "Count from the end."}\n```', "Count from the end."),
        ("'It's odd' is wrong, 'even' too", "'It's odd' is wrong, 'even' too"),
        ("Hints are rare: use them", "Hints are rare: use them"),
        ("a\x00b\x1b[31m", "a b [31m"),
        ("<think>never ends", ""),
        ("", ""),
    ],
)
def test_hint_text(reply: str, hint: str) -> None:
    assert hint_text(reply) == hint


def test_a_long_hint_is_cut() -> None:
    assert hint_text("one two three four", max_words=3) == "one two three"


@given(soup, st.integers(0, 12))
def test_a_hint_is_one_printable_line_within_its_limit(reply: str, words: int) -> None:
    hint = hint_text(reply, words)
    assert hint == "" or hint.isprintable()
    assert len(hint.split()) <= words


def test_deep_json_is_not_followed() -> None:
    bomb = '{"hint":' + "[" * 60_000 + "}"
    assert hint_text(bomb).startswith('{"hint":[')
