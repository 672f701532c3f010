"""From source text to a living environment: which class is meant, how it is built, what it says of itself."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

MODULE_NAME = "environment"
FILE_NAME = "environment.py"
DEFAULT_MAX_TURNS = 25
"""For a class that cannot be built without the argument."""
MAX_DESCRIPTION = 16_000
MAX_TOOLS_BYTES = 64_000


class LoadError(Exception):
    """The source is no environment; the text says why."""


def load(source: str, injected: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Run ``source`` as a module and build its environment.

    Returns:
        The environment, and what the daemon wants to know of it, as JSON values.

    Raises:
        LoadError: no class is an environment, or it describes itself wrongly.
        BaseException: whatever the source itself raises.
    """
    module = ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    vars(module).update(injected)
    exec(compile(source, FILE_NAME, "exec"), vars(module))  # noqa: S102 (running foreign code is this process's purpose)
    chosen = environment_class(vars(module))
    environment = build(chosen)
    return environment, {
        "class_name": chosen.__name__,
        "description": _description(chosen),
        "tools": _tools(environment),
        "max_turns": _max_turns(environment),
    }


def environment_class(namespace: Mapping[str, Any]) -> type:
    """The class meant by the author: named ``…Env``, defined here, able to reset and step.

    Of several the most derived one counts, and of equals the last.
    """
    named = [
        value
        for value in namespace.values()
        if isinstance(value, type) and value.__module__ == MODULE_NAME and value.__name__.endswith("Env")
    ]
    able = [each for each in named if callable(getattr(each, "reset", None)) and callable(getattr(each, "step", None))]
    final = [each for each in able if not any(other is not each and issubclass(other, each) for other in able)]
    if final:
        return final[-1]
    if named:
        raise LoadError(f"class {named[-1].__name__} lacks reset or step")
    raise LoadError("no class with a name ending in Env is defined")


def build(chosen: type) -> Any:
    """Without arguments where that is possible, else with ``max_turns`` alone."""
    try:
        signature = inspect.signature(chosen)
    except (TypeError, ValueError):
        return chosen()
    for arguments in ({}, {"max_turns": DEFAULT_MAX_TURNS}):
        try:
            signature.bind(**arguments)
        except TypeError:
            continue
        return chosen(**arguments)
    raise LoadError(f"class {chosen.__name__} must be callable with no argument or with max_turns")


def _description(chosen: type) -> str:
    text = chosen.__doc__
    return inspect.cleandoc(text)[:MAX_DESCRIPTION] if isinstance(text, str) else ""


def _tools(environment: Any) -> list[Any]:
    method = getattr(environment, "get_tools", None)
    if not callable(method):
        return []
    tools = method()
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, dict) for tool in tools):
        raise LoadError("get_tools must return a list of JSON objects")
    try:
        text = json.dumps(list(tools), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise LoadError(f"get_tools must return JSON: {error}") from error
    if len(text) > MAX_TOOLS_BYTES:
        raise LoadError(f"get_tools returns more than {MAX_TOOLS_BYTES} bytes of JSON")
    return list(json.loads(text))


def _max_turns(environment: Any) -> int | None:
    value = getattr(environment, "max_turns", None)
    return value if type(value) is int and 0 < value < 1 << 31 else None
