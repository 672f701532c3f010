"""Which class of a source is the environment, and how it is built."""

from __future__ import annotations

from typing import Any

import pytest

from spade_daemon.sandbox.box import loader

METHODS = (
    "    def reset(self, seed=None): return 'x', {}\n    def step(self, action): return 'x', 0.0, True, False, {}\n"
)


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """``load`` binds a module of this name."""
    monkeypatch.setitem(__import__("sys").modules, loader.MODULE_NAME, None)


def named(source: str, **injected: Any) -> str:
    return str(loader.load(source, injected)[1]["class_name"])


def test_the_one_class() -> None:
    assert named(f"class Helper: pass\nclass AEnv:\n{METHODS}") == "AEnv"


def test_the_one_that_resets_and_steps() -> None:
    assert named(f"class AEnv:\n{METHODS}class BEnv: pass\n") == "AEnv"


def test_the_most_derived() -> None:
    assert named(f"class AEnv:\n{METHODS}class BEnv(AEnv): pass\nclass Other: pass\n") == "BEnv"
    assert named(f"class BaseEnv:\n{METHODS}class AEnv(BaseEnv): pass\nBaseEnv = BaseEnv\n") == "AEnv"


def test_injected_classes_do_not_count() -> None:
    class ToolEnv:
        def reset(self) -> None: ...
        def step(self) -> None: ...

    with pytest.raises(loader.LoadError, match="ending in Env"):
        named("x = 1", ToolEnv=ToolEnv)
    assert named("class MineEnv(ToolEnv): pass", ToolEnv=ToolEnv) == "MineEnv"


def test_no_environment() -> None:
    with pytest.raises(loader.LoadError, match="ending in Env"):
        named("class Game: pass")
    with pytest.raises(loader.LoadError, match="lacks reset or step"):
        named("class GameEnv: pass")


@pytest.mark.parametrize(
    ("arguments", "turns"), [("self, max_turns=7", 7), ("self, max_turns", 25), ("self, *, max_turns", 25)]
)
def test_how_it_is_built(arguments: str, turns: int) -> None:
    source = f"class AEnv:\n    def __init__({arguments}): self.max_turns = max_turns\n{METHODS}"
    assert loader.load(source, {})[1]["max_turns"] == turns


def test_how_it_cannot_be_built() -> None:
    with pytest.raises(loader.LoadError, match="max_turns"):
        loader.load(f"class AEnv:\n    def __init__(self, size): pass\n{METHODS}", {})


def test_what_it_says_of_itself() -> None:
    source = f'class AEnv:\n    """One.\n\n    Two.\n    """\n    max_turns = True\n{METHODS}'
    described = loader.load(source + "    def get_tools(self): return ({'name': 'a'},)\n", {})[1]
    assert described == {
        "class_name": "AEnv",
        "description": "One.\n\nTwo.",
        "tools": [{"name": "a"}],
        "max_turns": None,
    }


@pytest.mark.parametrize("tools", ["3", "['x']", "[{'a': object()}]", "[{'a': float('nan')}]", "[{'a': 'x' * 70000}]"])
def test_bad_tools(tools: str) -> None:
    with pytest.raises(loader.LoadError, match="get_tools"):
        loader.load(f"class AEnv:\n{METHODS}    def get_tools(self): return {tools}\n", {})


def test_dataclasses_find_their_module() -> None:
    head = "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int = 0\n"
    assert named(f"{head}class AEnv:\n{METHODS}") == "AEnv"
