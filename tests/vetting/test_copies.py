"""Near-copies are found whatever was renamed; other games are not."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.envs.seeds import load_seeds
from spade_daemon.vetting.copies import nearest_copy, normalised_tokens, similarity
from tests.vetting.environments import GOOD, RENAMED


def test_names_numbers_texts_and_comments_do_not_count() -> None:
    assert normalised_tokens("if a == 'x{y}':  # why\n    f(1)") == normalised_tokens('if bb=="z":\n  g( 2_000.5 )')
    assert normalised_tokens("for x in y:") == ["for", "name", "in", "name", ":"]
    assert normalised_tokens('"""a\n\'b\'""" + r\'\\\'\'') == ["text", "+", "text"]


def test_a_renamed_copy_is_a_copy_also_inside_a_longer_text() -> None:
    assert similarity(GOOD, RENAMED) == 1.0
    assert similarity(GOOD, load_seeds()[6].code + RENAMED) == 1.0


@pytest.mark.parametrize(("one", "other"), combinations(load_seeds(), 2), ids=lambda seed: seed.name)
def test_the_seeds_are_no_copies_of_each_other(one: object, other: object) -> None:
    assert similarity(one.code, other.code) < 0.7  # type: ignore[attr-defined]


def test_the_nearest_is_named() -> None:
    known = {seed.name: seed.code for seed in load_seeds()} | {"original": RENAMED}
    assert nearest_copy(GOOD, known) == ("original", 1.0)
    assert nearest_copy(GOOD, {}) == (None, 0.0)


@given(st.text(), st.text())
def test_any_text_is_measured(one: str, other: str) -> None:
    share = similarity(one, other)
    assert 0.0 <= share <= 1.0
    assert share == similarity(other, one)
    assert similarity(one, one) == 1.0


@pytest.mark.parametrize("hostile", ["'" * 64_001, '"""' * 20_000, "\\" * 64_000, "f'" * 32_000, "'''\\" * 16_000])
def test_hostile_texts_are_cut_in_one_pass(hostile: str) -> None:
    assert len(normalised_tokens(hostile)) <= len(hostile)  # quadratic work would run into the suite's time limit
