"""A reply becomes an action: the last complete box, whatever surrounds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.words import Setting
from spade_daemon.envs.contract import Environment, action_of, contract
from spade_daemon.envs.support.spade_env import ToolUseEnv


@pytest.mark.parametrize(
    ("response", "action"),
    [
        (r"I go \boxed{north}", r"\boxed{north}"),
        (r"not \boxed{east} but \boxed{west}.", r"\boxed{west}"),
        (r"<think>\boxed{a}</think> \boxed{b}", r"\boxed{b}"),
        (r"<think>\boxed{a}</think> no box", "no box"),
        (r"\boxed{done} and then \boxed{cut of", r"\boxed{done}"),
        (r"\boxed{{1, 2}}", r"\boxed{{1, 2}}"),
        (r"\boxed{\text{take 3}}", r"\boxed{\text{take 3}}"),
        (r"\boxed{outer \boxed{inner}}", r"\boxed{inner}"),
        (r"stray } \boxed{x} { tail", r"\boxed{x}"),
        (r"\boxed{}", r"\boxed{}"),
        (r"\boxed {x}", r"\boxed {x}"),
        ("  plain words \n", "plain words"),
        ("", ""),
    ],
)
def test_games_take_the_last_complete_box(response: str, action: str) -> None:
    assert action_of(response, Setting.GAMES) == action


def test_tool_use_keeps_the_whole_text_after_thinking() -> None:
    said = 'I look. <tool_call>{"name": "a", "arguments": {}}</tool_call> \\boxed{b}'
    assert action_of(f"<think>hm</think>\n{said}", Setting.TOOL_USE) == said


def slow_last_box(text: str) -> str | None:
    """The definition, word by word: try every start from the right, count braces until it closes."""
    opening = "\\boxed{"
    for start in range(len(text) - len(opening), -1, -1):
        if not text.startswith(opening, start):
            continue
        depth = 0
        for at in range(start + len(opening) - 1, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                return text[start : at + 1]
    return None


pieces = st.lists(st.sampled_from(["\\boxed{", "\\boxed", "{", "}", "\\", "x", " ", "take 1", "\n"]), max_size=30)


@given(pieces.map("".join))
def test_agrees_with_the_definition(text: str) -> None:
    said = text.strip()
    assert action_of(text, Setting.GAMES) == (slow_last_box(said) or said)


@given(st.text(), st.text(alphabet=st.characters(exclude_characters="{}\\<"), max_size=40))
def test_a_box_at_the_end_always_arrives(before: str, command: str) -> None:
    box = f"\\boxed{{{command}}}"
    assert action_of(f"{before}{box}", Setting.GAMES) == box


@given(st.text(), st.sampled_from(list(Setting)))
def test_any_reply_becomes_an_action(response: str, setting: Setting) -> None:
    action = action_of(response, setting)
    assert action in response
    assert action_of(action, setting) == action


def test_hostile_nesting_is_linear() -> None:
    hostile = "\\boxed{" * 200_000  # quadratic work would run into the time limit of the whole suite
    assert action_of(hostile, Setting.GAMES) == hostile


def test_contract_has_words_for_each_setting() -> None:
    assert contract(Setting.GAMES) != contract(Setting.TOOL_USE)
    assert all("Env" in contract(setting) for setting in Setting)


def test_the_tool_base_class_is_an_environment() -> None:
    assert isinstance(ToolUseEnv(), Environment)
