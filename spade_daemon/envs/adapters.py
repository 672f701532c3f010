r"""Installed Gymnasium environments as text games: FrozenLake, Taxi, Blackjack and the like.

They run in this process, so only what the operator has installed belongs here; generated code belongs in the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.spaces import Discrete, Text

from spade_daemon.errors import UserInputError

_BOX = re.compile(r"^\\boxed\{(.*)\}$", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class GymnasiumGame:
    r"""A Gymnasium environment that speaks text: actions are ``\boxed{...}``, the observation names the legal ones.

    Rewards are clamped to [-1, 1]; as everywhere, the last one is the return when the game has terminated. An action
    that is not legal costs a turn and does not reach the environment.

    Args:
        environment_id: a registered id, as ``gymnasium.make`` takes it.
        actions: names of the actions of a ``Discrete`` space in order; default their numbers.
        goal: one sentence that begins each first observation.
        max_turns: the game is truncated after so many.
        options: further arguments for ``gymnasium.make``.

    Raises:
        UserInputError: the id is unknown, or its actions are neither Discrete nor Text.
    """

    def __init__(
        self,
        environment_id: str,
        *,
        actions: Sequence[str] = (),
        goal: str = "",
        max_turns: int = 25,
        **options: Any,
    ) -> None:
        self.max_turns = max_turns
        self._env = _make(environment_id, options)
        self._goal = goal or f"This is {environment_id}."
        self._space = self._env.action_space
        self._actions: dict[str, Any] = {}
        if isinstance(self._space, Discrete):
            numbers = [int(self._space.start) + at for at in range(int(self._space.n))]
            names = list(actions) or [str(number) for number in numbers]
            if len(names) != len(numbers):
                raise UserInputError(f"{environment_id} has {len(numbers)} actions, {len(names)} names were given")
            self._actions = dict(zip(names, numbers, strict=True))
        elif not isinstance(self._space, Text):
            raise UserInputError(f"{environment_id} has actions of {self._space}: only Discrete and Text can be played")
        self._turn = 0

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the instance of ``seed``."""
        self._turn = 0
        observation, _ = self._env.reset(seed=seed)
        return f"{self._goal}\n{self._show(observation)}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One action in the form that the observation names."""
        self._turn += 1
        late = self._turn >= self.max_turns
        box = _BOX.match(action.strip())
        said = (box.group(1) if box else action).strip()
        chosen = self._actions.get(said.casefold(), self._actions.get(said)) if self._actions else said
        if chosen is None or not self._space.contains(chosen):
            return f"Not legal. {self._legal()}", 0.0, False, late, {}
        observation, reward, terminated, truncated, _ = self._env.step(chosen)
        bounded = max(-1.0, min(1.0, float(reward)))
        return self._show(observation), bounded, bool(terminated), bool(truncated) or late, {}

    def close(self) -> None:
        """Free what the environment holds."""
        self._env.close()

    def _show(self, observation: Any) -> str:
        drawn = self._env.render() if self._env.render_mode == "ansi" else None
        text = _ESCAPE.sub("", drawn).strip() if isinstance(drawn, str) else ""
        return "\n".join(part for part in (f"Observation: {observation}", text, self._legal()) if part)

    def _legal(self) -> str:
        boxes = ", ".join(f"\\boxed{{{name}}}" for name in self._actions) or "\\boxed{text}"
        return f"Actions: {boxes}"


def _make(environment_id: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment, drawn as text where it can be."""
    try:
        env = gymnasium.make(environment_id, **options)
        if "ansi" in env.metadata.get("render_modes", ()) and "render_mode" not in options:
            env.close()
            env = gymnasium.make(environment_id, render_mode="ansi", **options)
        return env
    except (gymnasium.error.Error, ImportError) as error:
        raise UserInputError(f"cannot make Gymnasium environment {environment_id!r}: {error}") from error
