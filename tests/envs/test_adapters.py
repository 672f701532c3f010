"""Installed Gymnasium environments as text games."""

from __future__ import annotations

import gymnasium
import pytest
from gymnasium.spaces import Discrete, Text

from spade_daemon.envs.adapters import GymnasiumGame
from spade_daemon.envs.contract import Environment, Playable
from spade_daemon.errors import UserInputError

LAKE = ("left", "down", "right", "up")


def test_frozen_lake_is_won_by_names() -> None:
    game = GymnasiumGame("FrozenLake-v1", actions=LAKE, goal="Reach G.", is_slippery=False)
    assert isinstance(game, Playable)
    assert not isinstance(game, Environment)
    observation, _ = game.reset(seed=1)
    assert observation.startswith("Reach G.")
    assert "SFFF" in observation
    assert "\x1b" not in observation
    ends = [game.step(f"\\boxed{{{way}}}")[1:4] for way in ("down", "Down", "right", "right", "down", "right")]
    assert ends == [(0.0, False, False)] * 5 + [(1.0, True, False)]
    game.close()


@pytest.mark.parametrize("name", ["Taxi", "Blackjack", "CliffWalking"])
def test_toy_text_games_are_playable_and_repeat_themselves(name: str) -> None:
    name = max(known for known in gymnasium.registry if known.startswith(f"{name}-v"))

    def play() -> list[tuple[str, float, bool, bool, dict[str, object]]]:
        game = GymnasiumGame(name, max_turns=6)
        first, _ = game.reset(seed=4)
        assert "\\boxed{0}" in first
        steps = []
        for number in [1, 0, 1, 0, 1, 0]:
            steps.append(game.step(f"\\boxed{{{number}}}"))
            if steps[-1][2] or steps[-1][3]:
                break
        game.close()
        return steps

    steps = play()
    assert steps == play()
    assert steps[-1][2] or steps[-1][3]
    assert all(type(step[0]) is str and -1.0 <= step[1] <= 1.0 for step in steps)
    assert all(type(flag) is bool for step in steps for flag in step[2:4])


@pytest.mark.parametrize("action", ["", "\\boxed{}", "\\boxed{9}", "\\boxed{-1}", "fly", "x" * 9999])
def test_illegal_actions_cost_a_turn_and_change_nothing(action: str) -> None:
    game = GymnasiumGame("FrozenLake-v1", max_turns=2, is_slippery=False)
    first, _ = game.reset(seed=1)
    reply, reward, terminated, truncated, _ = game.step(action)
    assert reply.startswith("Not legal. Actions: ")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert game.step(action)[3]
    assert game.reset(seed=1)[0] == first


class EchoEnv(gymnasium.Env[str, str]):
    """Text in, text out."""

    observation_space = Text(20, min_length=0)
    action_space = Text(20)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[str, dict[str, object]]:
        super().reset(seed=seed)
        return "say", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        return action, 5.0, True, False, {}


class ContinuousEnv(EchoEnv):
    """Not playable in text."""

    action_space = gymnasium.spaces.Box(0, 1)  # type: ignore[assignment]


@pytest.fixture
def registered() -> None:
    gymnasium.register("test/Echo-v0", entry_point=EchoEnv)
    gymnasium.register("test/Continuous-v0", entry_point=ContinuousEnv)


@pytest.mark.usefixtures("registered")
@pytest.mark.filterwarnings("ignore")
def test_text_actions_pass_through_and_rewards_are_clamped() -> None:
    game = GymnasiumGame("test/Echo-v0")
    game.reset(seed=0)
    assert game.step("\\boxed{hello}")[:3] == ("Observation: hello\nActions: \\boxed{text}", 1.0, True)


@pytest.mark.usefixtures("registered")
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(UserInputError, match="only Discrete and Text"):
        GymnasiumGame("test/Continuous-v0")
    with pytest.raises(UserInputError, match="Nowhere"):
        GymnasiumGame("Nowhere-v0")
    with pytest.raises(UserInputError, match="4 actions, 1 names"):
        GymnasiumGame("FrozenLake-v1", actions=("left",))
    assert isinstance(gymnasium.make("FrozenLake-v1").action_space, Discrete)
