"""The verdicts of the gate: pure functions from what was seen to a finding.

A finding's detail is one line for the person, or the designer, who wants to know what to change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from schemas.words import Setting
from spade_daemon.sandbox.replies import Loaded
from spade_daemon.settings import VetSettings
from spade_daemon.vetting.copies import nearest_copy
from spade_daemon.vetting.policies import ECHO, EMPTY
from spade_daemon.vetting.traces import Trace, clip, first_difference

SIGNIFICANCE = 0.05
"""A trivial player must exceed its limit so clearly that luck would do it in fewer cases than this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. ``detail`` is empty exactly when it passed."""

    detail: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.detail


def size(source: str, settings: VetSettings) -> Finding:
    """Bounded text that can be sent: the one check that the daemon makes itself."""
    try:
        found = len(source.encode())
    except UnicodeEncodeError:
        return Finding("the code holds characters that are not UTF-8: write plain text")
    numbers = {"bytes": float(found), "limit": float(settings.max_code_bytes)}
    if found > settings.max_code_bytes:
        return Finding(f"the code has {found} bytes, more than {settings.max_code_bytes}: write less", numbers)
    if not source.strip() or "\0" in source:
        return Finding("the code is empty or holds a null character", numbers)
    return Finding(numbers=numbers)


def loads(loaded: Loaded | str, setting: Setting, settings: VetSettings) -> Finding:
    """It runs as a module, defines one environment, and describes itself as its setting demands."""
    if isinstance(loaded, str):
        return Finding(loaded)
    if setting is Setting.TOOL_USE and not loaded.tools:
        return Finding(f"{loaded.class_name} has no tools: extend ToolUseEnv and set tools")
    if setting is Setting.GAMES and loaded.tools:
        return Finding(f"{loaded.class_name} has tools: a game takes \\boxed{{...}} actions instead")
    if loaded.max_turns is not None and loaded.max_turns < settings.min_steps:
        return Finding(f"max_turns is {loaded.max_turns}: a game needs at least {settings.min_steps}")
    return Finding(numbers={"tools": float(len(loaded.tools)), "max_turns": float(loaded.max_turns or 0)})


def runs(asked: Sequence[Trace], junk: Sequence[Trace], settings: VetSettings) -> Finding:
    """Resets, answers ``solution()``, and answers junk, empty and huge actions with texts and rewards in bounds."""
    for trace in asked:
        if trace.fault is not None:
            return Finding(f"seed {trace.seed}: {trace.fault}")
        if not trace.observation.strip():
            return Finding(f"seed {trace.seed}: the first observation is empty: state the goal and the actions")
        if not trace.solution:
            return Finding(f"seed {trace.seed}: solution() gives no actions: return those that win this instance")
    for trace in junk:
        if trace.fault is not None:
            return Finding(f"seed {trace.seed}, {_where(trace)}: {trace.fault}")
        if wrong := _out_of_bounds(trace, settings.max_observation_chars):
            return Finding(wrong)
    longest = max(len(text) for trace in junk for text in _texts(trace))
    return Finding(numbers={"seeds": float(len(junk)), "longest_observation": float(longest)})


def seeded(asked: Sequence[Trace], junk: Sequence[Trace], again: Sequence[Trace]) -> Finding:
    """Equal seeds give equal games, also as the second game of a process; different seeds give different ones."""
    for one, other in zip(junk, again, strict=True):
        if difference := first_difference(one, other):
            return Finding(f"seed {one.seed}: a second reset with the same seed gives another game; {difference}")
    games = {(trace.observation, trace.solution) for trace in asked}
    numbers = {"seeds": float(len(asked)), "different": float(len(games))}
    needed = max(2, (len(asked) + 1) // 2)
    if len(games) < needed:
        return Finding(
            f"{len(asked)} seeds give only {len(games)} different games: draw all from Random(seed)", numbers
        )
    return Finding(numbers=numbers)


def deterministic(base: Sequence[Trace], replays: Mapping[int, Sequence[Trace]]) -> Finding:
    """The same actions give the same answers under another clock, hash seed, entropy, process id and address layout."""
    for variation, traces in replays.items():
        for one, other in zip(base, traces, strict=True):
            if difference := first_difference(one, other):
                return Finding(f"seed {one.seed}, replay in world {variation}: {difference}; use only Random(seed)")
    compared = sum(len(trace.exchanges) for trace in base)
    return Finding(numbers={"worlds": float(len(replays)), "steps": float(compared)})


def interactive(games: Iterable[Sequence[Trace]]) -> Finding:
    """Different actions lead to different observations while the game goes on.

    Args:
        games: traces of different actions on one seed, for each seed.
    """
    compared = 0
    for traces in games:
        for one, other in combinations(traces, 2):
            for a, b in zip(one.exchanges, other.exchanges, strict=False):
                if a.terminated or b.terminated or a.truncated or b.truncated:
                    break
                compared += a.action != b.action
                if a.action != b.action and a.observation != b.observation:
                    return Finding()
    if not compared:
        return Finding("every game ends at its first step: winning must take several actions")
    return Finding("observations do not depend on the actions: let every action change and show the state")


def solvable(
    solved: Sequence[Trace], shortcuts: Sequence[Trace], probed: Sequence[Trace], settings: VetSettings
) -> Finding:
    """``solution()`` wins on each seed in enough steps.

    Where its end alone would win too, the steps before it must be there to find something out; else the game is a
    question with a padded answer.
    """
    for trace in solved:
        if trace.fault is not None:
            return Finding(f"seed {trace.seed}, {_where(trace)}: {trace.fault}")
        if wrong := _out_of_bounds(trace, settings.max_observation_chars):
            return Finding(wrong)
        if not trace.won():
            last = trace.exchanges[-1].observation if trace.exchanges else "no action was given"
            return Finding(
                f"seed {trace.seed}: after {len(trace.exchanges)} actions of solution() the return "
                f"is {trace.return_():g}, not 1.0 with terminated; the last observation is {clip(last)}"
            )
    steps = [len(trace.exchanges) for trace in solved]
    numbers = {"min_steps": float(min(steps)), "max_steps": float(max(steps))}
    if min(steps) < settings.min_steps:
        return Finding(f"a game is won in {min(steps)} step, at least {settings.min_steps} must be needed", numbers)
    short = next((trace for trace in shortcuts if trace.won()), None)
    if short is not None and not reveals(probed):
        return Finding(
            f"seed {short.seed}: the last {len(short.exchanges)} of the solution's actions win alone, and acting "
            "reveals nothing: hide what must be known, or demand more than one right action",
            numbers,
        )
    return Finding(numbers=numbers)


def reveals(games: Sequence[Trace]) -> bool:
    """Whether acting tells something of the instance that its first observation does not.

    True if the same actions on two seeds are answered differently by more than what both games began with.
    """
    for one, other in combinations(games, 2):
        for a, b in zip(one.exchanges, other.exchanges, strict=False):
            if a.action != b.action or a.terminated or b.terminated:
                break
            if _news(one, a.observation) != _news(other, b.observation):
                return True
    return False


def _news(trace: Trace, observation: str) -> Counter[str]:
    return Counter(observation.split()) - Counter(trace.observation.split())


def not_trivial(played: Mapping[str, Sequence[Trace]], settings: VetSettings) -> Finding:
    """Players that understand nothing earn next to nothing, and nobody is paid for ending at once."""
    numbers: dict[str, float] = {}
    for name, traces in played.items():
        for trace in traces:
            if trace.fault is not None:
                return Finding(f"seed {trace.seed}, player {name}, {_where(trace)}: {trace.fault}", numbers)
            if wrong := _out_of_bounds(trace, settings.max_observation_chars):
                return Finding(f"player {name}: {wrong}", numbers)
            if name in (EMPTY, ECHO) and trace.return_() > 0 and len(trace.exchanges) < settings.min_steps:
                return Finding(f"seed {trace.seed}: player {name} is paid after {len(trace.exchanges)} step", numbers)
        numbers[name] = _mean(traces)
    limit = settings.max_trivial_rate
    clear = [name for name, traces in played.items() if _chance(traces, limit) < SIGNIFICANCE]
    advice = f"more than {limit:g}: make blind play lose and print no answers"
    if clear:
        worst = max(clear, key=lambda name: numbers[name])
        return Finding(
            f"a player without understanding ({worst}) earns {numbers[worst]:.2f} on average, {advice}", numbers
        )
    if min(numbers.values()) > limit:
        return Finding(
            f"every player without understanding earns {min(numbers.values()):.2f} or more, {advice}", numbers
        )
    return Finding(numbers=numbers)


def _mean(traces: Sequence[Trace]) -> float:
    return sum(max(0.0, trace.return_()) for trace in traces) / len(traces)


def _chance(traces: Sequence[Trace], rate: float) -> float:
    """How likely so many wins are for a player whose true rate is ``rate``: a few games prove nothing by luck."""
    games = len(traces)
    wins = int(sum(max(0.0, trace.return_()) for trace in traces))
    return sum(comb(games, k) * rate**k * (1 - rate) ** (games - k) for k in range(wins, games + 1))


def not_copy(source: str, known: Mapping[str, str], settings: VetSettings) -> Finding:
    """The code is not that of a remembered environment with other names, numbers and texts."""
    nearest, share = nearest_copy(source, known)
    numbers = {"similarity": share, "limit": settings.max_copy_similarity}
    if nearest is not None and share >= settings.max_copy_similarity:
        return Finding(f"{share:.0%} of the code is that of {nearest}: write a game of another kind", numbers)
    return Finding(numbers=numbers)


def _out_of_bounds(trace: Trace, max_chars: int) -> str | None:
    if longest := next((text for text in _texts(trace) if len(text) > max_chars), None):
        return f"seed {trace.seed}: an observation has {len(longest)} characters, more than {max_chars}: show less"
    if bad := next((each for each in trace.exchanges if not -1.0 <= each.reward <= 1.0), None):
        return f"seed {trace.seed}: reward {bad.reward:g} is not between -1 and 1: pay 1.0 for success, else 0.0"
    return None


def _texts(trace: Trace) -> list[str]:
    return [trace.observation, *(exchange.observation for exchange in trace.exchanges)]


def _where(trace: Trace) -> str:
    return f"step {len(trace.exchanges) + 1}" if trace.observation else "reset"
