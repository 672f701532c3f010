"""What a text game may stand on: a base class that counts turns, reads commands and never fails on nonsense.

Standard library only, like ``spade_env``; loaded into every sandbox worker. Its names are defined when an environment's
code runs, and so are the modules in ``__all__``: a game that forgets to import ``random`` still means ``random``.

A subclass says what the instance is, what each command does, and when the game is won::

    class LeakEnv(GameEnv):
        \"\"\"Find the leaking pipe by its pressure, close the valve, then seal the pipe.\"\"\"

        goal = "One of the pipes 1 to 9 leaks. Close the valve, then seal the leaking pipe."

        def setup(self, rng):
            self.leak, self.closed, self.sealed = rng.randint(1, 9), False, None

        def do_measure(self, pipe):
            return "low" if pipe >= self.leak else "normal"

        def do_close(self):
            self.closed = True
            return "The valve is closed."

        def do_seal(self, pipe):
            if self.closed:
                self.sealed = pipe
            return f"Pipe {pipe} is sealed." if self.closed else "Water sprays out."

        def won(self):
            return self.sealed == self.leak

        def lost(self):
            return self.sealed not in (None, self.leak)

It need not say how to win: :meth:`GameEnv.solution` finds the shortest way by search, so a game that cannot be won is
found out as well. A subclass whose games are too long for the search writes its own.
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
MAX_DEPTH, MAX_STATES, MAX_ARGUMENTS, MAX_WORDS = 8, 4000, 400, 24
"""Limits of the search for a way to win: commands in a row, states, arguments of one command, words to try."""
NUMERIC = {"number", "amount", "step", "count", "n", "x", "y", "value", "position", "place", "level", "size", "digit"}
"""Names of parameters that mean a number, in the singular."""
NONSENSE = (ValueError, TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError)
"""What a command raises on arguments that mean nothing: the player is told, the game goes on."""


class GameEnv:
    """Base of text games: each ``do_<verb>`` method is a command, its parameters are the command's words.

    An argument that is a whole number arrives as ``int``, any other as text.

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
        """Commands (``"seal 4"``) that win the current instance: the shortest, found by trying all, breadth first.

        Raises:
            ValueError: none was found within the limits of the search.
        """
        commands = self._all_commands()
        frontier: list[tuple[Any, tuple[str, ...]]] = [(self, ())]
        seen = {self._fingerprint()}
        for _ in range(MAX_DEPTH):
            following: list[tuple[Any, tuple[str, ...]]] = []
            for state, path in frontier:
                for command in commands:
                    if len(seen) > MAX_STATES:
                        raise ValueError("no way to win was found: the game is too large to try everything")
                    after = copy.deepcopy(state)
                    after._obey(command)
                    if after.won():
                        return [*path, command]
                    mark = after._fingerprint()
                    if mark not in seen and not after.lost():
                        seen.add(mark)
                        following.append((after, (*path, command)))
            frontier = following
        raise ValueError("no way to win was found: the game cannot be won, or only by a long way")

    def _fingerprint(self) -> str:
        """The whole state as text: two ways into one state are searched on once."""
        return repr(sorted((name, repr(value)) for name, value in vars(self).items()))

    def _all_commands(self) -> list[str]:
        """Every command with every argument that the instance's own values suggest."""
        words = self._vocabulary()
        commands = []
        for name in sorted(dir(self)):
            if name.startswith(_PREFIX):
                count = len(inspect.signature(getattr(self, name)).parameters)
                choices = itertools.islice(itertools.product(words, repeat=count), MAX_ARGUMENTS)
                commands += [" ".join((name.removeprefix(_PREFIX), *arguments)) for arguments in choices]
        return commands

    def _vocabulary(self) -> list[str]:
        """Words and small numbers that stand in the instance's attributes."""
        words: dict[str, None] = {}
        pending = [value for name, value in sorted(vars(self).items()) if name != "turn"]
        while pending and len(words) < MAX_WORDS:
            value = pending.pop(0)
            if isinstance(value, dict):
                pending += [*value, *value.values()]
            elif isinstance(value, (list, tuple, set, frozenset)):
                pending += sorted(value, key=repr) if isinstance(value, (set, frozenset)) else list(value)
            elif isinstance(value, (str, int)) and not isinstance(value, bool) and len(str(value).split()) == 1:
                words[str(value)] = None
        return list(words)

    def commands(self) -> str:
        r"""The legal commands by example, ``\boxed{seal 5}``, and the names that may stand in them."""
        names = self._names()
        forms = []
        for method in sorted(dir(self)):
            if method.startswith(_PREFIX):
                parameters = inspect.signature(getattr(self, method)).parameters
                words = (_example(parameter, names) for parameter in parameters)
                forms.append(f"\\boxed{{{' '.join((method.removeprefix(_PREFIX), *words))}}}")
        listed = f". Names: {', '.join(names)}" if names else ""
        return f"Actions, by example: {', '.join(forms)}{listed}."

    def _names(self) -> list[str]:
        """Words that the instance's collections hold, in the order of the alphabet, which tells nothing.

        A text that stands alone in an attribute is not among them: it may be the secret.
        """
        found: set[str] = set()
        for value in vars(self).values():
            if isinstance(value, (dict, list, tuple, set, frozenset)):
                found |= {word for word in value if isinstance(word, str) and len(word.split()) == 1}
        return sorted(found)[:MAX_WORDS]

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
            return str(method(*(int(word) if word.lstrip("-").isdecimal() else word for word in arguments)))
        except NONSENSE:
            return "That is not possible."

    def _seen(self, said: object) -> str:
        return " ".join(part for part in (str(said).strip(), str(self.look()).strip(), self.commands()) if part)


def _example(parameter: str, names: list[str]) -> str:
    """A word that could stand for a parameter: a number where its name says so or there is nothing else."""
    return "5" if not names or parameter.rstrip("s") in NUMERIC else names[0]
