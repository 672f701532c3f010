"""Checks of what an environment may say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.sandbox import replies
from spade_daemon.sandbox.frames import FrameError

STEP = {"observation": "x", "reward": 0.5, "terminated": False, "truncated": False, "info": {}}
RESET = {"observation": "x", "info": {}}
LOADED: dict[str, Any] = {"class_name": "XEnv", "description": "", "tools": [], "max_turns": None}


def test_good_replies() -> None:
    assert replies.step(STEP) == replies.Step("x", 0.5, False, False, {})
    assert replies.step(STEP | {"reward": 1}).reward == 1.0
    assert replies.reset(RESET) == replies.Reset("x", {})
    assert replies.loaded(LOADED | {"tools": [{"a": 1}], "max_turns": 3}).tools == ({"a": 1},)
    assert replies.solution({"actions": ["a", "b"]}) == ("a", "b")


@pytest.mark.parametrize(
    "change",
    [
        {"reward": True},
        {"reward": "1"},
        {"reward": None},
        {"reward": 10.01},
        {"reward": -(1 << 60)},
        {"reward": float("nan")},
        {"terminated": 1},
        {"truncated": None},
        {"observation": None},
        {"observation": "ä" * 32_001},
        {"info": []},
        {"info": {"a": "x" * 16_000}},
        {"extra": 1},
    ],
    ids=str,
)
def test_bad_steps(change: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        replies.step(STEP | change)


@pytest.mark.parametrize(
    "change",
    [
        {"max_turns": 0},
        {"max_turns": True},
        {"max_turns": 3.0},
        {"tools": {}},
        {"tools": ["x"]},
        {"tools": [{"a": "x" * 64_000}]},
        {"class_name": 1},
        {"description": "x" * 64_001},
    ],
)
def test_bad_descriptions(change: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        replies.loaded(LOADED | change)


@pytest.mark.parametrize("actions", [None, "x", [1], ["x"] * 1_001, ["x" * 64_001]])
def test_bad_solutions(actions: Any) -> None:
    with pytest.raises(FrameError):
        replies.solution({"actions": actions})


@pytest.mark.parametrize("check", [replies.step, replies.reset, replies.loaded, replies.solution])
@given(value=st.none() | st.integers() | st.text() | st.lists(st.none()) | st.dictionaries(st.text(), st.none()))
def test_anything_else_is_refused(check: Any, value: Any) -> None:
    with pytest.raises(FrameError):
        check(value)
