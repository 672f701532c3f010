"""Normal form, title and cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_daemon.corpus.text import count_words, cut, digest_of, normalise, title_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None)
@given(TEXTS)
def test_normal_form_is_a_fixed_point(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert "\r" not in once and "\0" not in once and "\n\n\n" not in once


def test_what_a_reader_cannot_see_makes_no_other_document() -> None:
    same = ["Café\n\nau lait", "\ufeffCafé  \r\n\r\n\r\n\r\nau lait\r\n", "Cafe\u0301\n \nau lait\n\n"]
    assert len({digest_of(normalise(text)) for text in same}) == 1
    assert digest_of(normalise("Café au lait")) != digest_of(normalise(same[0]))


@settings(deadline=None)
@given(TEXTS)
def test_words_are_those_of_split(text: str) -> None:
    assert count_words(text) == len(text.split())


@settings(deadline=None)
@given(TEXTS, st.integers(1, 60))
def test_cut_is_a_prefix_of_bounded_length(text: str, words: int) -> None:
    kept = cut(text, words)
    assert text.startswith(kept)
    total = len(text.split())
    if total <= words:
        assert kept == text
    else:
        assert words - words // 10 <= len(kept.split()) <= words


def test_cut_keeps_lines_and_ends_at_a_near_sentence_end() -> None:
    text = "One two three.\n\nFour five six seven eight nine.  Ten eleven twelve thirteen."
    assert cut(text, 10) == "One two three.\n\nFour five six seven eight nine."
    assert cut(text, 8) == "One two three.\n\nFour five six seven eight"
    assert cut(text, 13) == text


def test_cut_does_not_take_a_decimal_point_for_an_end() -> None:
    assert cut("a b c d e f g h 3.14 k l m", 10) == "a b c d e f g h 3.14 k"


def test_cut_refuses_nothing() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        cut("a", 0)


def test_titles() -> None:
    assert title_of("# Tides  and moons\n\nText", "file") == "Tides and moons"
    assert title_of("Text # not a heading", "file") == "file"
    assert title_of("#\n", "file") == "file"
    assert title_of("# a\x1b[31mb", "file") == "a�[31mb"
    assert len(title_of("# " + "x" * 1000, "file")) == 120
