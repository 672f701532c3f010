"""The base class of text games: commands, nonsense, and the search for a way to win."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spade_daemon.envs.support as support
from spade_daemon.method.outlines import worked_examples

SOURCE = Path(support.__file__).parent / "spade_game.py"


def game(code: str) -> Any:
    """An instance of the one game in ``code``."""
    spec = importlib.util.spec_from_file_location("spade_game", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    namespace = {name: getattr(module, name) for name in module.__all__}
    exec(code, namespace)  # noqa: S102 (our own worked examples)
    (found,) = [v for k, v in namespace.items() if k.endswith("Env") and k != "GameEnv"]
    return found()


EXAMPLES = [example.code for example in worked_examples()]
UNWINNABLE = """
class StuckEnv(GameEnv):
    def setup(self, rng):
        self.value = 0
    def do_add(self):
        self.value = 1 - self.value
    def won(self):
        return self.value == 7
"""


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_search_wins_each_worked_example(code: str) -> None:
    for seed in range(10):
        played = game(code)
        played.reset(seed)
        *before, last = [played.step(f"\\boxed{{{command}}}") for command in played.solution()]
        assert last[1:4] == (1.0, True, False)
        assert all(step[1:4] == (0.0, False, False) for step in before)


def test_a_game_that_cannot_be_won_has_no_solution() -> None:
    played = game(UNWINNABLE)
    played.reset(1)
    with pytest.raises(ValueError, match="no way to win"):
        played.solution()


def test_the_search_leaves_the_instance_as_it_was() -> None:
    played = game(EXAMPLES[0])
    played.reset(4)
    before = dict(vars(played))
    played.solution()
    assert vars(played) == before


@given(st.text(max_size=60))
def test_nonsense_is_answered(action: str) -> None:
    played = game(EXAMPLES[1])
    played.reset(1)
    observation, reward, terminated, _, info = played.step(action)
    assert isinstance(observation, str) and reward in (0.0, 1.0) and info == {}
    assert not terminated or reward == 0.0


def test_commands_are_shown_by_example_with_names_that_tell_nothing() -> None:
    played = game(EXAMPLES[1])
    observation, _ = played.reset(3)
    assert "\\boxed{call ann}" in observation and "Names: ann, bob, cid, dee." in observation
    assert "\\boxed{measure 5}" in game(EXAMPLES[0]).reset(3)[0]
