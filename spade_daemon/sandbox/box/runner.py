"""The loop inside a worker: load an environment's source, then answer reset, step and solution.

From the moment foreign code has run, this process is part of what the daemon distrusts. The checks here only make
honest mistakes readable; the daemon checks every reply again.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from . import loader

MAX_REPLY = 256 << 10
MAX_OBSERVATION = 64_000
MAX_INFO = 16_000
MAX_ERROR = 2_000
MAX_INFO_DEPTH = 8
REWARD_RANGE = (-10.0, 10.0)
HEADER = struct.Struct(">I")

Reply = dict[str, Any]
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class InvalidError(Exception):
    """The environment broke its contract; the text says how."""


class Runner:
    """One environment and the operations on it."""

    def __init__(self, injected: Mapping[str, Any], reseed: Callable[[int], None]) -> None:
        self._injected = injected
        self._reseed = reseed
        self._environment: Any = None

    def load(self, request: Reply) -> Reply:
        """Run the source and build the environment."""
        self._reseed(0)
        try:
            self._environment, described = loader.load(request["source"], self._injected)
        except loader.LoadError as error:
            raise InvalidError(str(error)) from error
        return described

    def reset(self, request: Reply) -> Reply:
        """Begin an episode. The global ``random`` is seeded too, for environments that use it."""
        self._reseed(request["seed"])
        result = self._environment.reset(seed=request["seed"])
        if type(result) is not tuple or len(result) != 2:
            raise InvalidError(f"reset must return (observation, info), got {_shape(result)}")
        return {"observation": _observation(result[0]), "info": _info(result[1])}

    def step(self, request: Reply) -> Reply:
        """One action."""
        result = self._environment.step(request["action"])
        if type(result) is not tuple or len(result) != 5:
            message = "step must return (observation, reward, terminated, truncated, info)"
            raise InvalidError(f"{message}, got {_shape(result)}")
        observation, reward, terminated, truncated, info = result
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if type(flag) is not bool:
                raise InvalidError(f"{name} must be True or False, got {_shape(flag)}")
        return {
            "observation": _observation(observation),
            "reward": _reward(reward),
            "terminated": terminated,
            "truncated": truncated,
            "info": _info(info),
        }

    def solution(self, request: Reply) -> Reply:
        """The environment's own actions for the current instance."""
        method = getattr(self._environment, "solution", None)
        if not callable(method):
            raise InvalidError("the environment has no solution() method")
        actions = method()
        if isinstance(actions, str):
            actions = (actions,)
        if not isinstance(actions, list | tuple) or not all(isinstance(action, str) for action in actions):
            raise InvalidError(f"solution must return a list of action strings, got {_shape(actions)}")
        return {"actions": [str(action) for action in actions]}


def serve(descriptor: int, runner: Runner) -> NoReturn:
    """Answer requests until the daemon closes the connection."""
    operations = {"load": runner.load, "reset": runner.reset, "step": runner.step, "solution": runner.solution}
    while True:
        (length,) = HEADER.unpack(_read(descriptor, HEADER.size))
        request = json.loads(_read(descriptor, length))
        reply = _answer(operations[request["op"]], request)
        if len(_encode(reply)) > MAX_REPLY:
            reply = {"id": request["id"], "nonce": request["nonce"], "invalid": "the reply is too large as JSON"}
        send(descriptor, reply)


def send(descriptor: int, reply: Reply) -> None:
    """Write one frame."""
    payload = _encode(reply).encode()
    rest = memoryview(HEADER.pack(len(payload)) + payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _answer(operation: Callable[[Reply], Reply], request: Reply) -> Reply:
    identity = {"id": request["id"], "nonce": request["nonce"]}
    try:
        return identity | {"ok": operation(request)}
    except InvalidError as error:
        return identity | {"invalid": _clip(str(error))}
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: an environment cannot end its episode by raising.
        return identity | {"crash": _clip(_describe(error))}


def _read(descriptor: int, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = os.read(descriptor, count - len(parts))
        if not part:
            os._exit(0)
        parts += part
    return parts


def _observation(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidError(f"an observation must be a str, got {_shape(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidError("an observation holds text that is not UTF-8") from None
    if size > MAX_OBSERVATION:
        raise InvalidError(f"an observation has {size} bytes, at most {MAX_OBSERVATION} are allowed")
    return str(value)


def _reward(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidError(f"reward must be an int or float, got {_shape(value)}")
    low, high = REWARD_RANGE
    if not low <= value <= high:  # NaN compares as false
        raise InvalidError(f"reward must be within [{low:g}, {high:g}]")
    return float(value)


def _info(value: object) -> Reply:
    if not isinstance(value, dict):
        raise InvalidError(f"info must be a dict, got {_shape(value)}")
    kept = _plain(value, 0)
    if len(_encode(kept).encode()) > MAX_INFO:
        raise InvalidError(f"info has more than {MAX_INFO} bytes as JSON")
    return kept if isinstance(kept, dict) else {}


def _plain(value: object, depth: int) -> Any:
    """What JSON can carry of a value; the rest is dropped."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(1 << 53) <= value <= 1 << 53 else None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth >= MAX_INFO_DEPTH:
        return None
    if isinstance(value, dict):
        pairs = ((key, _plain(item, depth + 1)) for key, item in value.items() if isinstance(key, str))
        return {_plain(key, depth): item for key, item in pairs if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return None


def _shape(value: object) -> str:
    """Type of a value, with its length or text where that helps; never its ``repr``, which may be endless."""
    if type(value) in (tuple, list, dict, str):
        return f"a {type(value).__name__} of length {len(value)}"  # type: ignore[arg-type]
    return f"a {type(value).__name__}"


def _describe(error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == loader.FILE_NAME]
    if isinstance(error, SyntaxError) and error.filename == loader.FILE_NAME:
        lines.append(error.lineno)
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException:
        text = "(its message cannot be shown)"
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {text[:MAX_ERROR]}{where}"


def _clip(text: str) -> str:
    return text.encode(errors="replace")[:MAX_ERROR].decode(errors="ignore")


class Sink:
    """Standard output of an environment: nobody reads it."""

    encoding, errors, closed = "utf-8", "replace", False

    def write(self, text: str) -> int:
        """Accept and forget."""
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Accept and forget."""

    def flush(self) -> None:
        """Nothing is held."""

    def isatty(self) -> bool:
        """No."""
        return False

    def writable(self) -> bool:
        """Yes."""
        return True


def mute() -> None:
    """Standard streams lead nowhere."""
    sink = Sink()
    vars(sys).update(stdin=None, __stdin__=None, stdout=sink, stderr=sink, __stdout__=sink, __stderr__=sink)
