"""What a text game may stand on: a base class that counts turns, reads commands and never fails on nonsense.

Standard library only, like ``spade_env``; loaded into every sandbox worker. Its names are defined when an environment's
code runs, and so are the modules in ``__all__``: a game that forgets to import ``random`` still means ``random``.

A subclass says what the instance is, what each command does, and when the game is won::

    class LeakEnv(GameEnv):
        \"\"\"Find the leaking pipe by its pressure, then seal it.\"\"\"

        goal = "One of the pipes 1 to 9 leaks. Find it and seal it."

        def setup(self, rng):
            self.leak, self.sealed = rng.randint(1, 9), None

        def do_measure(self, pipe):
            return "low" if int(pipe) >= self.leak else "normal"

        def do_seal(self, pipe):
            self.sealed = int(pipe)
            return f"Pipe {pipe} is sealed."

        def won(self):
            return self.sealed == self.leak

        def lost(self):
            return self.sealed not in (None, self.leak)

        def solution(self):
            return [f"measure {self.leak}", f"seal {self.leak}"]
"""

from __future__ import annotations

import collections
import copy
import functools
import heapq
import inspect
import itertools
import json
import math
import operator
import random
import re
import string
from collections import Counter, defaultdict, deque
from typing import Any

__all__ = [
    "Counter",
    "GameEnv",
    "collections",
    "copy",
    "defaultdict",
    "deque",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "string",
]

_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_PREFIX = "do_"
NONSENSE = (ValueError, TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError)
"""What a command raises on arguments that mean nothing: the player is told, the game goes on."""


class GameEnv:
    """Base of text games: each ``do_<verb>`` method is a command, its parameters are the command's words.

    Reward 1.0 comes once, with termination, when :meth:`won` is true after a command; a lost game ends with 0.0.
    """

    goal: str = ""
    """What the player is told first; may also be set in :meth:`setup`."""
    max_turns: int = 10
    turn: int

    def setup(self, rng: random.Random) -> None:
        """Make one instance from ``rng`` alone. Subclasses write this."""
        raise NotImplementedError("write setup(self, rng)")

    def won(self) -> bool:
        """Whether the goal is reached. Subclasses write this."""
        raise NotImplementedError("write won(self)")

    def lost(self) -> bool:
        """Whether the goal cannot be reached any more."""
        return False

    def look(self) -> str:
        """What the player sees of the state after every command; nothing hidden."""
        return ""

    def solution(self) -> list[str]:
        """Commands (``"seal 4"``) that win the current instance. Subclasses write this."""
        raise NotImplementedError("write solution(self)")

    def commands(self) -> str:
        r"""The legal commands, as the player reads them: ``\boxed{seal PIPE}``."""
        forms = []
        for name in dir(self):
            if name.startswith(_PREFIX):
                words = [
                    name.removeprefix(_PREFIX),
                    *(p.upper() for p in inspect.signature(getattr(self, name)).parameters),
                ]
                forms.append(f"\\boxed{{{' '.join(words)}}}")
        return "Actions: " + ", ".join(forms)

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the instance of ``seed``."""
        self.turn = 0
        self.setup(random.Random(seed))
        return self._seen(self.goal), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command."""
        self.turn += 1
        said = self._obey(action)
        if self.won():
            return f"{said} You win.", 1.0, True, False, {}
        if self.lost():
            return f"{said} You lose.", 0.0, True, False, {}
        return self._seen(said), 0.0, False, self.turn >= self.max_turns, {}

    def _obey(self, action: str) -> str:
        boxed = _BOXED.findall(action)
        verb, *arguments = (boxed[-1] if boxed else action).replace(",", " ").split() or [""]
        method = getattr(self, _PREFIX + verb.lower(), None)
        if method is None:
            return "That is not a command."
        try:
            inspect.signature(method).bind(*arguments)
            return str(method(*arguments))
        except NONSENSE:
            return "That is not possible."

    def _seen(self, said: object) -> str:
        return " ".join(part for part in (str(said).strip(), str(self.look()).strip(), self.commands()) if part)
