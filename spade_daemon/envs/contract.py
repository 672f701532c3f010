"""What an environment is: the contract in words, as a type, and how an agent's reply becomes an action."""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable

from schemas.words import Setting

GAMES = r"""An environment is one Python class whose name ends in Env, using only the standard library.
- The class docstring says in one line what the game is.
- max_turns: class attribute, the most turns a game may take.
- reset(self, seed=None) -> (observation, {}): make a new instance from random.Random(seed) only. Equal seeds give equal
  games, different seeds give different games. observation is a short text that states the goal and the legal actions.
- step(self, action) -> (observation, reward, terminated, truncated, {}): action is a text such as \boxed{dig 4}. It
  changes hidden state; the observation shows what happened and the legal actions again. reward is 1.0 with terminated
  True when the goal is reached, else 0.0. truncated is True when max_turns is used up.
- solution(self) -> list of action texts that win the current instance.
- Winning takes at least two actions. What is hidden is found out by acting; it is never printed.
- Any action text must be answered: nonsense gets a reminder of the legal actions, never an exception."""

TOOL_USE = r"""An environment is one Python class whose name ends in Env, using only the standard library, that
extends ToolUseEnv (already defined, as are tool, call, ToolError and DONE).
- The class docstring says in one line what the task is. max_turns: class attribute.
- tools: class attribute, a list of tool("name", "what it does", argument="string", ...).
- setup(self, rng): set self.state (a dict) and self.instructions from rng, a random.Random. instructions is a list of 3
  to 5 pairs (text, criterion); criterion(state) is False at first and True once the instruction has been carried out.
- tool_<name>(self, argument, ...): read or change self.state and return a text or a JSON value. raise ToolError("why")
  to refuse. self.called("name", argument=value) tells whether a call has succeeded.
- solution(self): list of call("name", argument=value) texts that solve the current instance, with DONE last.
- Every value that the agent needs is in an instruction or in what a tool returns. Do not write reset or step."""


def contract(setting: Setting) -> str:
    """The contract in words, as the designer reads it."""
    return GAMES if setting is Setting.GAMES else TOOL_USE


@runtime_checkable
class Playable(Protocol):
    """What can be played."""

    max_turns: int

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the instance of ``seed``: the first observation and a dict."""
        ...

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, info, as Gymnasium means them."""
        ...


@runtime_checkable
class Environment(Playable, Protocol):
    """What can be vetted too. Games write all three methods; tool use inherits the first two from ``ToolUseEnv``."""

    def solution(self) -> list[str]:
        """Actions that reach reward 1.0 and termination from the state right after ``reset``."""
        ...


_THINK_END = "</think>"
_BRACE = re.compile(r"\\boxed\{|[{}]")


def action_of(response: str, setting: Setting) -> str:
    r"""What of an agent's reply reaches ``step``.

    Thinking (up to the last ``</think>``) is dropped. In games the action is the last complete ``\boxed{...}`` with
    balanced braces, returned with its ``\boxed{}`` around it, so that a command mentioned in passing does not win over
    the final one; a reply without any is passed on as it is, and the environment may say what is wrong with it. In tool
    use the environment parses the whole text.
    """
    said = response.rpartition(_THINK_END)[2].strip()
    if setting is Setting.TOOL_USE:
        return said
    span = _last_box(said)
    return said if span is None else said[span[0] : span[1]]


def _last_box(text: str) -> tuple[int, int] | None:
    r"""Span of the complete ``\boxed{...}`` that begins last. One pass: linear also in hostile text."""
    open_at: list[int | None] = []
    last: tuple[int, int] | None = None
    for match in _BRACE.finditer(text):
        if match.group() != "}":
            open_at.append(match.start() if match.group() != "{" else None)
        elif open_at:
            start = open_at.pop()
            if start is not None and (last is None or start > last[0]):
                last = (start, match.end())
    return last
