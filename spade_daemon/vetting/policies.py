r"""Players that understand nothing. An environment that they win teaches nothing.

Each knows only shapes of actions: the reference solutions of *other* seeds, and the ``\boxed{...}`` that it is shown.
None knows the instance it plays.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas.words import Setting
from spade_daemon.vetting.traces import Exchange

Actor = Callable[[str, Sequence[Exchange]], str | None]
"""Latest observation and the episode so far to the next action; ``None`` stops playing."""

EMPTY, ECHO = "empty", "echo"
"""Names of the players that cannot win even by luck."""

_TOKEN = re.compile(r"[A-Za-z0-9_]+")
_BOX = re.compile(r"\\boxed\{[^{}]{1,80}\}")
_RANDOM_PER_SEED = 12
_MEMORISED_PER_SEED = 4
_CONSTANTS = 2
_TEMPLATES = 2


@dataclass(frozen=True, slots=True)
class Shapes:
    """What can be known of an environment's actions without understanding it."""

    setting: Setting
    solutions: Mapping[int, tuple[str, ...]]
    """Reference solution of each seed."""
    common: Counter[str]
    """Tokens that the first observations of all seeds share, with their counts: what is no value of one instance."""


def shapes_of(setting: Setting, solutions: Mapping[int, tuple[str, ...]], observations: Sequence[str]) -> Shapes:
    """Collect what the trivial players may know."""
    counts = [Counter(_TOKEN.findall(observation)) for observation in observations]
    common = counts[0].copy() if counts else Counter[str]()
    for count in counts[1:]:
        common &= count
    return Shapes(setting, dict(solutions), common)


def trivial_actors(seed: int, shapes: Shapes) -> list[tuple[str, Actor]]:
    """The players to try on ``seed``, by name. Equal names on several seeds are one player."""
    others = {other: actions for other, actions in shapes.solutions.items() if other != seed}
    vocabulary = sorted({action for actions in others.values() for action in actions}) or [_wrap("1", shapes.setting)]
    counts = Counter(action for actions in others.values() for action in actions)
    actors: list[tuple[str, Actor]] = [
        (EMPTY, lambda observation, past: ""),
        (ECHO, lambda observation, past: _wrap(observation, shapes.setting)),
    ]
    for rank, (action, _) in enumerate(counts.most_common(_CONSTANTS)):
        actors.append((f"constant {rank}", _constant(action)))
    for attempt in range(_RANDOM_PER_SEED):
        actors.append(("random", _random(vocabulary, random.Random(f"{seed}:{attempt}"))))
    for actions in list(others.values())[:_MEMORISED_PER_SEED]:
        actors.append(("memorised", replay(actions)))
    for rank, template in enumerate(_templates(others)):
        for order in ("first", "last", "walk"):
            actors.append((f"copy {order} {rank}", _copy(template, order, shapes.common)))
    actors.append(("copy box", _copy_box(shapes.common)))
    return actors


def replay(actions: Sequence[str]) -> Actor:
    """Play these actions in order, then stop."""
    return lambda observation, past: actions[len(past)] if len(past) < len(actions) else None


def mixed(actions: Sequence[str], seed: int) -> Actor:
    """Random play among ``actions``, in an order that ``seed`` alone decides: for replays."""
    return lambda observation, past: random.Random(f"{seed}:{len(past)}").choice(list(actions))


def _constant(action: str) -> Actor:
    return lambda observation, past: action


def _random(vocabulary: Sequence[str], rng: random.Random) -> Actor:
    def act(observation: str, past: Sequence[Exchange]) -> str:
        shown = _BOX.findall(observation)
        return rng.choice(shown) if shown and rng.random() < 0.5 else rng.choice(vocabulary)

    return act


@dataclass(frozen=True, slots=True)
class _Template:
    """An action with holes: ``pieces`` alternate between fixed text and the text that stood in a hole."""

    pieces: tuple[str, ...]

    def fill(self, values: Sequence[str], start: int) -> str:
        """Put values of each hole's kind, number or word, into the holes, beginning with the ``start``-th."""
        numbers = _rotated([value for value in values if value.isdigit()], start)
        words = _rotated([value for value in values if not value.isdigit()], start)
        filled = list(self.pieces)
        for at in range(1, len(filled), 2):
            same_kind = numbers if filled[at].isdigit() else words
            if same_kind:
                filled[at] = same_kind.pop(0)
        return "".join(filled)


def _rotated(values: list[str], start: int) -> list[str]:
    at = start % len(values) if values else 0
    return values[at:] + values[:at]


def _templates(solutions: Mapping[int, tuple[str, ...]]) -> list[_Template]:
    """The commonest action shapes. A token is a hole unless every seed's solution uses it."""
    per_seed = [set(_TOKEN.findall(" ".join(actions))) for actions in solutions.values()]
    fixed = set.intersection(*per_seed) if per_seed else set()
    counts: Counter[str] = Counter()
    example: dict[str, _Template] = {}
    for action in (action for actions in solutions.values() for action in actions):
        template = _cut(action, fixed)
        key = "\0".join(template.pieces[::2])
        counts[key] += 1
        example.setdefault(key, template)
    return [example[key] for key, _ in counts.most_common() if len(example[key].pieces) > 1][:_TEMPLATES]


def _cut(action: str, fixed: set[str]) -> _Template:
    pieces, at = [], 0
    for match in _TOKEN.finditer(action):
        if match.group() not in fixed and match.group() != "boxed":
            pieces += [action[at : match.start()], match.group()]
            at = match.end()
    return _Template((*pieces, action[at:]))


def _copy(template: _Template, order: str, common: Counter[str]) -> Actor:
    """Fill the template with values that are printed: the first ones, the last ones, or one further each turn."""

    def act(observation: str, past: Sequence[Exchange]) -> str:
        values = _fresh(observation, common)
        return template.fill(values[::-1] if order == "last" else values, len(past) if order == "walk" else 0)

    return act


def _copy_box(common: Counter[str]) -> Actor:
    """Send the shown box that is rarest in what every seed shows: an answer printed by mistake."""

    def act(observation: str, past: Sequence[Exchange]) -> str:
        fresh = set(_fresh(observation, common))
        shown = _BOX.findall(observation)
        return max(shown, key=lambda box: len(fresh & set(_TOKEN.findall(box))), default=_wrap("1", Setting.GAMES))

    return act


def _fresh(observation: str, common: Counter[str]) -> list[str]:
    """Tokens beyond what every seed prints, in the order in which they stand."""
    left = common.copy()
    fresh = []
    for token in reversed(_TOKEN.findall(observation)):
        if left[token] > 0:
            left[token] -= 1
        else:
            fresh.append(token)
    return fresh[::-1]


def _wrap(text: str, setting: Setting) -> str:
    if setting is Setting.GAMES:
        return f"\\boxed{{{text}}}"
    return f"<tool_call>{json.dumps({'name': text[:200], 'arguments': {}})}</tool_call><answer>done</answer>"
