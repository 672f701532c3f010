"""The base class of tool-use environments: it parses calls itself, reveals one instruction at a time, pays once."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.envs.support.spade_env import (
    DONE,
    MAX_CALLS,
    Call,
    Malformed,
    ToolError,
    ToolUseEnv,
    call,
    parse_calls,
    tool,
)


class LampEnv(ToolUseEnv):
    """Switch a lamp."""

    max_turns = 6
    tools = (
        tool("find", "Find a lamp.", room="string"),
        tool("dim", "Dim a lamp.", lamp="string", level={"type": "integer", "enum": [0, 50, 100]}),
        tool("label", "Label a lamp.", lamp="string", tags="object", colour={"type": "string", "default": "red"}),
        tool("fail", "Fails in a way.", how="string"),
    )

    def setup(self, rng: random.Random) -> None:
        self.lamp = f"L{rng.randint(100, 999)}"
        self.state = {"level": 100, "tags": None, "sent": 0}
        self.instructions = [
            ("Find the lamp in the hall.", lambda s: self.called("find", room="hall")),
            ("Dim it to 50.", lambda s: s["level"] == 50),
            ("Label it.", lambda s: s["tags"] is not None),
        ]

    def tool_find(self, room: str) -> dict[str, str]:
        return {"lamp": self.lamp}

    def tool_dim(self, lamp: str, level: int) -> str:
        if lamp != self.lamp:
            raise ToolError("no such lamp")
        self.state["level"] = level
        return "dimmed"

    def tool_label(self, lamp: str, tags: dict[str, Any], colour: str = "red") -> dict[str, Any]:
        self.state["tags"] = tags
        return tags

    def tool_fail(self, how: str) -> str:
        if how == "lookup":
            return str({}[how])
        if how == "long":
            return "x" * 100_000
        raise AttributeError(how)

    def solution(self) -> list[str]:
        tags = {"owner": {"name": "Ada", "ids": [1, {"deep": True}]}}
        return [
            call("find", room="hall"),
            call("dim", lamp=self.lamp, level=50),
            call("label", lamp=self.lamp, tags=tags),
            DONE,
        ]


@pytest.fixture
def lamp() -> LampEnv:
    env = LampEnv()
    env.reset(seed=3)
    return env


def test_solution_wins_and_instructions_come_one_at_a_time(lamp: LampEnv) -> None:
    observation, _ = lamp.reset(seed=3)
    assert observation == "Find the lamp in the hall."
    *calls, done = lamp.solution()
    for action, follow_up in zip(calls, ["Dim it to 50.", "Label it.", "last instruction"], strict=True):
        reply, reward, terminated, truncated, _ = lamp.step(action)
        assert follow_up in reply
        assert (reward, terminated, truncated) == (0.0, False, False)
    assert lamp.step(done)[1:4] == (1.0, True, False)


def test_nested_arguments_survive(lamp: LampEnv) -> None:
    lamp.step(lamp.solution()[2])
    assert lamp.state["tags"] == {"owner": {"name": "Ada", "ids": [1, {"deep": True}]}}


def test_several_calls_in_one_turn_run_in_order_and_may_end_the_game(lamp: LampEnv) -> None:
    reply, reward, terminated, _, _ = lamp.step("Now: " + "\n".join(lamp.solution()))
    assert (reward, terminated) == (1.0, True), reply
    assert [done.name for done in lamp.calls] == ["find", "dim", "label"]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "find", "parameters": {"room": "hall"}}</tool_call>',
        '<tool_call>{"name": "find", "arguments": "{\\"room\\": \\"hall\\"}"}</tool_call>',
        '<tool_call>\n\n{"arguments": {"room": "hall"}, "name": "find", "id": 7}\n</tool_call>',
    ],
)
def test_accepted_spellings(lamp: LampEnv, text: str) -> None:
    assert "Next instruction: Dim it" in lamp.step(text)[0]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<tool_call>{'name': 'find'}</tool_call>", "malformed_call"),
        ('<tool_call>{"name": "find", "arguments": {"room": "hall"}}', "malformed_call"),
        ('<tool_call>{"name": "find", "arguments": {"room": "ha', "malformed_call"),
        ('<tool_call>{"name": "find", "arguments": [1]}</tool_call>', "malformed_call"),
        ('<tool_call>{"name": "find", "arguments": "room"}</tool_call>', "malformed_call"),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', "malformed_call"),
        ('<tool_call>["find"]</tool_call>', "malformed_call"),
        ("<tool_call></tool_call>", "malformed_call"),
        ('<tool_call>{"name": "find", "arguments": {"room": NaN}}</tool_call>', "malformed_call"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "malformed_call"),
        ('<tool_call>{"name": "find", "arguments": {"room": ' + "9" * 10_000 + "}}</tool_call>", "malformed_call"),
        (call("open", door="a"), "unknown_tool"),
        (call("__init__"), "unknown_tool"),
        (call("find"), "invalid_arguments"),
        (call("find", room=3), "invalid_arguments"),
        (call("find", room="hall", floor=1), "invalid_arguments"),
        (call("dim", lamp="L1", level=51), "invalid_arguments"),
        (call("dim", lamp="L1", level=True), "invalid_arguments"),
        (call("dim", lamp="L1", level=50), "tool_failed"),
        (call("fail", how="lookup"), "tool_failed"),
        ("I do not know", "no_call"),
        ("", "no_call"),
        (DONE, "not_done"),
        ("<answer>42</answer>", "not_done"),
    ],
)
def test_mistakes_are_named_and_change_nothing(lamp: LampEnv, text: str, kind: str) -> None:
    before = json.dumps(lamp.state)
    reply, reward, terminated, _, _ = lamp.step(text)
    assert f"Error [{kind}]" in reply
    assert (reward, terminated) == (0.0, False)
    assert json.dumps(lamp.state) == before
    assert lamp.turn == 1
    assert lamp.lamp not in reply


def test_an_answer_inside_an_argument_is_no_answer(lamp: LampEnv) -> None:
    for action in lamp.solution()[:-1]:
        lamp.step(action)
    _, reward, terminated, _, _ = lamp.step(call("find", room=DONE))
    assert (reward, terminated) == (0.0, False)


def test_a_closing_tag_inside_an_argument_does_not_cut_the_call() -> None:
    calls, outside = parse_calls("a" + call("find", room="</tool_call>") + "b")
    assert calls == [Call("find", {"room": "</tool_call>"})]
    assert outside == "ab"


def test_a_default_may_be_left_out_and_a_defect_is_not_hidden(lamp: LampEnv) -> None:
    assert "Error" not in lamp.step(call("label", lamp="x", tags={}))[0]
    with pytest.raises(AttributeError):
        lamp.step(call("fail", how="defect"))


def test_long_results_and_floods_of_calls_are_bounded(lamp: LampEnv) -> None:
    assert len(lamp.step(call("fail", how="long"))[0]) < 5000
    reply = lamp.step(call("find", room="x") * (MAX_CALLS + 5))[0]
    assert "Error [too_many_calls]" in reply
    assert len(lamp.calls) == MAX_CALLS + 1


def test_turns_run_out(lamp: LampEnv) -> None:
    flags = [lamp.step("hm")[3] for _ in range(lamp.max_turns)]
    assert flags == [False] * (lamp.max_turns - 1) + [True]


def test_schemas_are_openai_functions(lamp: LampEnv) -> None:
    schema = lamp.get_tools()[2]
    assert schema["type"] == "function"
    assert schema["function"]["name"] == "label"
    assert schema["function"]["parameters"]["required"] == ["lamp", "tags"]
    assert json.loads(json.dumps(lamp.get_tools())) == lamp.get_tools()


def test_a_schema_without_method_is_refused() -> None:
    class Broken(LampEnv):
        tools = (tool("nothing", "Has no method."),)

    with pytest.raises(TypeError, match="tool_nothing"):
        Broken().get_tools()


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ([("only one", lambda s: False)], "give 3 to 5"),
        ([("a", lambda s: False), ("b", lambda s: True), ("c", lambda s: False)], "before anything was done"),
    ],
)
def test_bad_instructions_are_refused_at_reset(instructions: list[Any], message: str) -> None:
    class Broken(LampEnv):
        def setup(self, rng: random.Random) -> None:
            super().setup(rng)
            self.instructions = instructions

    with pytest.raises(ValueError, match=message):
        Broken().reset(seed=0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=4))
def test_what_is_written_is_read(all_arguments: list[dict[str, Any]]) -> None:
    bodies = [json.dumps({"name": "n", "arguments": arguments}) for arguments in all_arguments]
    calls, _ = parse_calls(" and ".join(f"<tool_call>{body}</tool_call>" for body in bodies))
    assert calls == [Call("n", arguments) for arguments in all_arguments]


fragments = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", '{"name": "find"', "}", "{", '"', "<answer>", "done", DONE, "[", ","]
    )
    | st.text(max_size=5),
    max_size=20,
)


@given(fragments.map("".join))
def test_no_text_breaks_the_parser_or_earns_anything(text: str) -> None:
    calls, _ = parse_calls(text)
    assert all(isinstance(each, Call | Malformed) for each in calls)
    env = LampEnv()
    env.reset(seed=1)
    assert env.step(text)[1:3] == (0.0, False)
