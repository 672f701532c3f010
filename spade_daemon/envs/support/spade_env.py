"""What a tool-use environment stands on: a base class, two helpers that write schemas and calls, one error.

This file is standard library only and imports nothing of the project: its text is loaded as module ``spade_env`` into
every sandbox worker, where the names of ``__all__`` are already defined when the environment's code runs.

A subclass says which tools there are, makes one instance from a seed, and solves it::

    class DoorEnv(ToolUseEnv):
        \"\"\"Open the door of a customer, lock it again, and report.\"\"\"

        tools = [tool("find", "Find a door.", owner="string"), tool("turn", "Turn a key.", door="string", way="string")]

        def setup(self, rng):
            door = f"D{rng.randint(100, 999)}"
            self.state = {"door": door, "open": False, "locked": 0}
            self.instructions = [
                ("Find Ada's door.", lambda s: self.called("find", owner="Ada")),
                ("Open it.", lambda s: s["open"]),
                ("Lock it again.", lambda s: s["locked"] == 1),
            ]

        def tool_find(self, owner): ...
        def tool_turn(self, door, way): ...

        def solution(self):
            door = self.state["door"]
            return [call("find", owner="Ada"), call("turn", door=door, way="open"),
                    call("turn", door=door, way="lock"), DONE]
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

__all__ = ["DONE", "ToolError", "ToolUseEnv", "call", "tool"]

DONE = "<answer>done</answer>"
"""What the agent writes when it has carried out every instruction."""
MAX_CALLS = 16
"""Calls carried out in one turn; the rest is answered with an error."""
MAX_RESULT_CHARS = 4000
"""A tool's longer result is cut here."""

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_ANSWER = re.compile(r"<answer>([^<]{0,200})</answer>", re.IGNORECASE)
_FORM = '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}

Criterion = Callable[[dict[str, Any]], object]
"""State to truth: whether an instruction has been carried out."""


class ToolError(Exception):
    """Raised by a tool that refuses: the message is the agent's answer, and the state must be as it was."""


class Call(NamedTuple):
    """One well-formed call of the agent."""

    name: str
    arguments: dict[str, Any]


class Malformed(NamedTuple):
    """One call that cannot be read, and why."""

    reason: str


def tool(name: str, description: str, /, **parameters: str | Mapping[str, Any]) -> dict[str, Any]:
    """Write one OpenAI function schema.

    Args:
        name: the subclass has a method ``tool_<name>`` with these parameters.
        description: what the tool does, for the agent.
        parameters: JSON type (``"string"``) or JSON schema (``{"type": "integer", "enum": [1, 5]}``) of each argument.
            An argument whose schema has a ``default`` may be left out.
    """
    properties = {key: {"type": value} if isinstance(value, str) else dict(value) for key, value in parameters.items()}
    required = [key for key, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def call(name: str, /, **arguments: Any) -> str:
    """Write one tool call as the agent would."""
    return f"{_OPEN}{json.dumps({'name': name, 'arguments': arguments})}{_CLOSE}"


class ToolUseEnv:
    """Base of tool-use environments: instructions come one at a time, tools change ``state``, criteria judge it.

    A turn is one text of the agent, which may hold several calls: they are carried out in order. Reward 1.0 comes once,
    with termination, when the agent answers ``done`` and every instruction has been carried out; all else earns 0.0. No
    reply ever contains the solution.
    """

    max_turns: int = 12
    tools: ClassVar[Sequence[Mapping[str, Any]]] = ()

    state: dict[str, Any]
    instructions: Sequence[tuple[str, Criterion]]
    calls: list[Call]
    """Calls that succeeded in this episode, oldest first."""
    completed: int
    turn: int

    def setup(self, rng: random.Random) -> None:
        """Make one instance: set ``state`` and ``instructions`` from ``rng`` alone. Subclasses write this."""
        raise NotImplementedError("write setup(self, rng)")

    def solution(self) -> list[str]:
        """Texts that solve the current instance, in order, :data:`DONE` last. Subclasses write this."""
        raise NotImplementedError("write solution(self)")

    def get_tools(self) -> list[dict[str, Any]]:
        """OpenAI function schemas of all tools.

        Raises:
            TypeError: a schema has no method.
        """
        for schema in self.tools:
            if not callable(getattr(self, f"tool_{schema['function']['name']}", None)):
                raise TypeError(f"tool {schema['function']['name']!r} has no method tool_{schema['function']['name']}")
        return [dict(schema) for schema in self.tools]

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the instance of ``seed``; returns the first instruction.

        Raises:
            ValueError: not 3 to 5 instructions, or one that is fulfilled before anything was done.
        """
        self.turn, self.completed, self.calls = 0, 0, []
        self.setup(random.Random(seed))
        if not 3 <= len(self.instructions) <= 5:
            raise ValueError(f"{len(self.instructions)} instructions: give 3 to 5")
        for text, criterion in self.instructions:
            if criterion(self.state):
                raise ValueError(f"instruction {text!r} is fulfilled before anything was done")
        return self.instructions[0][0], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one turn of the agent: every tool call in it, then its answer if there is one."""
        self.turn += 1
        calls, outside = parse_calls(action)
        replies = [self._carry_out(each) for each in calls[:MAX_CALLS]]
        if len(calls) > MAX_CALLS:
            replies.append(_error("too_many_calls", f"only the first {MAX_CALLS} calls were carried out"))
        answers = _ANSWER.findall(outside)
        if answers and answers[-1].strip().casefold() == "done" and self.completed == len(self.instructions):
            return "All instructions are done.", 1.0, True, False, {}
        if answers:
            replies.append(_error("not_done", f"{self._pending()} When all is done write {DONE}"))
        elif not calls:
            replies.append(_error("no_call", f"write {_FORM} or, when all is done, {DONE}"))
        return "\n".join(replies), 0.0, False, self.turn >= self.max_turns, {}

    def called(self, name: str, /, **arguments: Any) -> bool:
        """Whether ``name`` has succeeded in this episode with at least these arguments."""
        wanted = arguments.items()
        return any(done.name == name and wanted <= done.arguments.items() for done in self.calls)

    def _carry_out(self, request: Call | Malformed) -> str:
        if isinstance(request, Malformed):
            return _error("malformed_call", f"{request.reason}; write {_FORM}")
        schemas = {schema["function"]["name"]: schema["function"]["parameters"] for schema in self.tools}
        if request.name not in schemas:
            return _error("unknown_tool", f"{request.name[:80]!r}; there are {', '.join(schemas)}")
        if wrong := _wrong_arguments(request.arguments, schemas[request.name]):
            return _error("invalid_arguments", f"{request.name}: {wrong}")
        try:
            result = getattr(self, f"tool_{request.name}")(**request.arguments)
        except (ToolError, LookupError, ValueError) as refusal:
            # A failed look-up or conversion is how simple tools say no; any other exception is a defect.
            return _error("tool_failed", f"{request.name}: {refusal}")
        self.calls.append(request)
        return _text(result) + self._advance()

    def _advance(self) -> str:
        before = self.completed
        while self.completed < len(self.instructions) and self.instructions[self.completed][1](self.state):
            self.completed += 1
        return "" if self.completed == before else f"\nDone. {self._pending()}"

    def _pending(self) -> str:
        if self.completed == len(self.instructions):
            return f"That was the last instruction: write {DONE}"
        return f"Next instruction: {self.instructions[self.completed][0]}"


def parse_calls(text: str) -> tuple[list[Call | Malformed], str]:
    """Read all tool calls of one turn.

    Returns:
        The calls in order, and the text outside them. A call that is never closed swallows the rest.
    """
    calls: list[Call | Malformed] = []
    outside: list[str] = []
    at = 0
    while (start := text.find(_OPEN, at)) >= 0:
        outside.append(text[at:start])
        parsed, at = _parse_call(text, start + len(_OPEN))
        calls.append(parsed)
    outside.append(text[at:])
    return calls, "".join(outside)


def _parse_call(text: str, start: int) -> tuple[Call | Malformed, int]:
    """The call whose body begins at ``start``, and where the text goes on after it."""
    try:
        body, end = _DECODER.raw_decode(text, _skip_space(text, start))
    except (ValueError, RecursionError) as error:
        return Malformed(f"not JSON ({str(error)[:80]})"), _after_close(text, start)
    end = _skip_space(text, end)
    if not text.startswith(_CLOSE, end):
        return Malformed(f"no {_CLOSE} after the JSON object"), _after_close(text, end)
    return _as_call(body), end + len(_CLOSE)


def _as_call(body: Any) -> Call | Malformed:
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        return Malformed('no JSON object with a "name"')
    arguments = body.get("arguments", body.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments or "{}")
        except (ValueError, RecursionError):
            return Malformed("arguments are a text that is not JSON")
    if not isinstance(arguments, dict):
        return Malformed("arguments are not a JSON object")
    return Call(body["name"], arguments)


def _wrong_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """What is wrong with ``arguments``, or ``None``. Types are checked at the top level only."""
    properties: Mapping[str, Mapping[str, Any]] = schema["properties"]
    if missing := [name for name in schema["required"] if name not in arguments]:
        return f"missing {', '.join(missing)}"
    for name, value in arguments.items():
        if name not in properties:
            return f"no argument {name[:80]!r}; there are {', '.join(properties)}"
        expected = properties[name].get("type", "")
        is_bool_as_number = isinstance(value, bool) and expected != "boolean"
        if expected in _TYPES and (is_bool_as_number or not isinstance(value, _TYPES[expected])):
            return f"{name} must be of type {expected}"
        if "enum" in properties[name] and value not in properties[name]["enum"]:
            return f"{name} must be one of {', '.join(map(str, properties[name]['enum']))}"
    return None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _after_close(text: str, start: int) -> int:
    close = text.find(_CLOSE, start)
    return len(text) if close < 0 else close + len(_CLOSE)


def _error(kind: str, message: str) -> str:
    return f"Error [{kind}]: {message}"


def _text(result: Any) -> str:
    text = result if isinstance(result, str) else json.dumps(result, default=str)
    return text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS]} [cut]"
