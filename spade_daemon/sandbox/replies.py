"""What an environment may say, checked value by value. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue

from spade_daemon.sandbox.frames import FrameError

MAX_OBSERVATION = 64_000
MAX_INFO = 16_000
MAX_DESCRIPTION = 64_000
MAX_TOOLS = 64_000
MAX_ACTIONS = 1_000
MAX_ACTIONS_BYTES = 64_000
REWARD_LOW, REWARD_HIGH = -10.0, 10.0

T = TypeVar("T")
Fields = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an environment says of itself. All of it is untrusted text."""

    class_name: str
    description: str
    """The class's docstring, or empty."""
    tools: tuple[dict[str, JsonValue], ...]
    """JSON schemas of the tools of a tool-use environment; empty for a game."""
    max_turns: int | None
    """The environment's own limit on turns, if it names one."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The beginning of an episode."""

    observation: str
    info: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to one action, in Gymnasium's meaning."""

    observation: str
    reward: float
    """Finite, in [-10, 10]."""
    terminated: bool
    truncated: bool
    info: dict[str, JsonValue]


def loaded(value: JsonValue) -> Loaded:
    """Check the reply to ``load``.

    Raises:
        FrameError: as all functions here, on a wrong shape, type or range. Honest mistakes of an environment are
            found inside the worker; what fails here was forged.
    """
    fields = _fields(value, "class_name", "description", "tools", "max_turns")
    tools = _list(fields["tools"])
    if _size(fields["tools"]) > MAX_TOOLS:
        raise FrameError("described tools at too great a length")
    max_turns = fields["max_turns"]
    if max_turns is not None and (type(max_turns) is not int or max_turns < 1):
        raise FrameError("named a turn limit that is no positive integer")
    return Loaded(
        class_name=_text(fields["class_name"], 1_000),
        description=_text(fields["description"], MAX_DESCRIPTION),
        tools=tuple(_dict(tool) for tool in tools),
        max_turns=max_turns if type(max_turns) is int else None,
    )


def reset(value: JsonValue) -> Reset:
    """Check the reply to ``reset``."""
    fields = _fields(value, "observation", "info")
    return Reset(_text(fields["observation"], MAX_OBSERVATION), _info(fields["info"]))


def step(value: JsonValue) -> Step:
    """Check the reply to ``step``."""
    fields = _fields(value, "observation", "reward", "terminated", "truncated", "info")
    reward = fields["reward"]
    if type(reward) not in (int, float) or not isinstance(reward, int | float):
        raise FrameError("gave a reward that is no number")
    if not (math.isfinite(reward) and REWARD_LOW <= reward <= REWARD_HIGH):
        raise FrameError("gave a reward out of range")
    return Step(
        observation=_text(fields["observation"], MAX_OBSERVATION),
        reward=float(reward),
        terminated=_flag(fields["terminated"]),
        truncated=_flag(fields["truncated"]),
        info=_info(fields["info"]),
    )


def solution(value: JsonValue) -> tuple[str, ...]:
    """Check the reply to ``solution``."""
    actions = _list(_fields(value, "actions")["actions"])
    if len(actions) > MAX_ACTIONS:
        raise FrameError(f"gave a solution of more than {MAX_ACTIONS} actions")
    if _size(actions) > MAX_ACTIONS_BYTES:
        raise FrameError(f"gave a solution of more than {MAX_ACTIONS_BYTES} bytes")
    return tuple(_text(action, MAX_ACTIONS_BYTES) for action in actions)


Check = Callable[[JsonValue], T]


def _fields(value: JsonValue, *names: str) -> Fields:
    fields = _dict(value)
    if set(fields) != set(names):
        raise FrameError("sent a reply with other fields")
    return fields


def _dict(value: JsonValue) -> Fields:
    if not isinstance(value, dict):
        raise FrameError("sent something else where an object is due")
    return value


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise FrameError("sent something else where a list is due")
    return value


def _text(value: JsonValue, limit: int) -> str:
    if not isinstance(value, str):
        raise FrameError("sent something else where text is due")
    if len(value.encode()) > limit:
        raise FrameError(f"sent a text of more than {limit} bytes")
    return value


def _flag(value: JsonValue) -> bool:
    if not isinstance(value, bool):
        raise FrameError("gave a flag that is neither true nor false")
    return value


def _info(value: JsonValue) -> Fields:
    fields = _dict(value)
    if _size(fields) > MAX_INFO:
        raise FrameError(f"gave an info of more than {MAX_INFO} bytes")
    return fields


def _size(value: JsonValue) -> int:
    return len(json.dumps(value, separators=(",", ":")))
