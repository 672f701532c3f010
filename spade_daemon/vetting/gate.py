"""The gate: run a proposed environment in the sandbox, cheap checks first, and say yes or no with the reason."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import JsonValue

from schemas.records import Check
from schemas.words import Setting
from spade_daemon.sandbox.sandbox import Loaded, Sandbox
from spade_daemon.settings import VetSettings
from spade_daemon.vetting import checks
from spade_daemon.vetting.checks import Finding
from spade_daemon.vetting.policies import mixed, replay, shapes_of, trivial_actors
from spade_daemon.vetting.probe import Prober, together
from spade_daemon.vetting.traces import Trace

WORLDS = (1, 2, 3)
"""Sandbox variations for the varied replay; fewer would miss the order of small sets."""
MAX_PROBES = 12
JUNK = (
    "",
    "\\boxed{test}",
    "\\boxed{-1}",
    "\\boxed{}",
    "\\boxed{99999999999999999999}",
    "x" * 5_000,
    "\\boxed{ü ☃ \x07 ' \" \\n}",
    '<tool_call>{"name": "nothing", "arguments": {"x": [1, {"y": null}]}}</tool_call>',
    "<tool_call>{",
    "\\boxed{1}",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's decision, and what later steps need to know of the environment."""

    accepted: bool
    reason: str | None
    """Name of the check that rejected it."""
    checks: tuple[Check, ...]
    """In order, up to the first that failed."""
    description: str
    """First line of the class's docstring, else its name: text of the environment, untrusted."""
    solution_actions: tuple[tuple[str, ...], ...] = ()
    """What ``solution()`` returned for each seed."""
    first_observations: tuple[str, ...] = ()
    """What ``reset`` returned for each seed."""
    tools: tuple[dict[str, JsonValue], ...] = ()


async def vet(
    source: str,
    *,
    setting: Setting,
    sandbox: Sandbox,
    settings: VetSettings,
    seeds: Sequence[int],
    known: Mapping[str, str] = MappingProxyType({}),
    clock: Callable[[], float] = time.perf_counter,
) -> Verdict:
    """Decide whether ``source`` may be played.

    Args:
        source: the designer's code; it runs in the sandbox only.
        setting: which contract it must keep.
        sandbox: open, with the support modules and at least three variations.
        settings: limits.
        seeds: instances to try, at least two; the caller derives them from the environment so that a repeat agrees.
        known: code of remembered environments by id, against near-copies.
        clock: seconds, for the time of each check.

    Raises:
        EpisodeFault: the infrastructure failed, so nothing is known; try again.
        ValueError: fewer than two seeds.
    """
    if len(set(seeds)) < 2:
        raise ValueError("give at least two different seeds")
    gate = _Gate(source, setting, Prober(sandbox, source), settings, tuple(seeds), known)
    done: list[Check] = []
    for name, stage in gate.stages():
        began = clock()
        finding = await stage()
        seconds = clock() - began
        done.append(
            Check(
                name=name, passed=finding.passed, detail=finding.detail, numbers=dict(finding.numbers), seconds=seconds
            )
        )
        if not finding.passed:
            break
    return gate.verdict(tuple(done))


@dataclass
class _Gate:
    """The stages and the evidence that they share. Each stage adds what it saw and judges it with a pure check."""

    source: str
    setting: Setting
    prober: Prober
    settings: VetSettings
    seeds: tuple[int, ...]
    known: Mapping[str, str]
    loaded: Loaded | str = "not loaded"
    junk: list[Trace] = field(default_factory=list)
    asked: list[Trace] = field(default_factory=list)
    again: list[Trace] = field(default_factory=list)
    solved: list[Trace] = field(default_factory=list)
    probed: list[Trace] = field(default_factory=list)
    """Each seed played with the same actions, taken from the solutions of all."""
    shortcuts: list[Trace] = field(default_factory=list)
    """Each seed played with only the end of its solution."""

    def stages(self) -> list[tuple[str, Callable[[], Awaitable[Finding]]]]:
        return [
            ("size", self.size),
            ("loads", self.loads),
            ("runs", self.runs),
            ("seeded", self.seeded),
            ("deterministic", self.deterministic),
            ("interactive", self.interactive),
            ("solvable", self.solvable),
            ("not_trivial", self.not_trivial),
            ("not_copy", self.not_copy),
        ]

    async def size(self) -> Finding:
        return checks.size(self.source, self.settings)

    async def loads(self) -> Finding:
        self.loaded = await self.prober.load()
        return checks.loads(self.loaded, self.setting, self.settings)

    async def runs(self) -> Finding:
        pairs = await together([self.prober.ask(seed, replay(_junk(at))) for at, seed in enumerate(self.seeds)])
        self.asked, self.again = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        played = await together([self.prober.play(seed, [replay(_junk(at))]) for at, seed in enumerate(self.seeds)])
        self.junk = [traces[0] for traces in played]
        return checks.runs(self.asked, [*self.junk, *self.again], self.settings)

    async def seeded(self) -> Finding:
        return checks.seeded(self.asked, self.junk, self.again)

    async def deterministic(self) -> Finding:
        probes = replay(self._probes())
        played = await together(
            [
                self.prober.play(trace.seed, [replay(self._actions(trace)), probes, replay(end)])
                for trace, end in zip(self.asked, self._ends(), strict=True)
            ]
        )
        # A fault ends a list early; what was not played is an empty trace.
        padded = [[*traces, Trace(traces[0].seed), Trace(traces[0].seed)] for traces in played]
        self.solved, self.probed, self.shortcuts = ([traces[at] for traces in padded] for at in range(3))
        base = [self.asked[0], self.junk[0], self.solved[0], *await self._mixed(0)]
        replays = await together([self._again_in(world) for world in WORLDS])
        return checks.deterministic(base, dict(zip(WORLDS, replays, strict=True)))

    async def interactive(self) -> Finding:
        return checks.interactive(zip(self.junk, self.solved, self.probed, strict=True))

    async def solvable(self) -> Finding:
        return checks.solvable(self.solved, self.shortcuts, self.probed, self.settings)

    async def not_trivial(self) -> Finding:
        solutions = {trace.seed: self._actions(trace) for trace in self.asked}
        shapes = shapes_of(self.setting, solutions, [trace.observation for trace in self.asked])
        players = {seed: trivial_actors(seed, shapes) for seed in self.seeds}
        games = await together(
            [self.prober.play(seed, [actor for _, actor in actors]) for seed, actors in players.items()]
        )
        played: dict[str, list[Trace]] = {}
        for actors, traces in zip(players.values(), games, strict=True):
            for (name, _), trace in zip(actors, traces, strict=False):
                played.setdefault(name, []).append(trace)
        return checks.not_trivial(played, self.settings)

    async def not_copy(self) -> Finding:
        return checks.not_copy(self.source, self.known, self.settings)

    def verdict(self, done: tuple[Check, ...]) -> Verdict:
        failed = next((check for check in done if not check.passed), None)
        loaded = None if isinstance(self.loaded, str) else self.loaded
        return Verdict(
            accepted=failed is None,
            reason=failed.name if failed else None,
            checks=done,
            description=_first_line(loaded) if loaded else "",
            solution_actions=tuple(self._actions(trace) for trace in self.asked),
            first_observations=tuple(trace.observation for trace in self.asked),
            tools=loaded.tools if loaded else (),
        )

    async def _again_in(self, world: int) -> list[Trace]:
        """The four base traces once more, in fresh processes of another world."""
        seed, actions = self.asked[0].seed, self._actions(self.asked[0])
        asked, _ = await self.prober.ask(seed, replay(()), variation=world)
        played = await together(
            [
                self.prober.play(seed, [replay(_junk(0))], variation=world),
                self.prober.play(seed, [replay(actions)], variation=world),
                self._mixed(world),
            ]
        )
        return [asked, *(traces[0] for traces in played)]

    async def _mixed(self, world: int) -> list[Trace]:
        """Blind play on the second seed: it reaches corners that neither junk nor the solution does."""
        actions = sorted({action for trace in self.asked for action in self._actions(trace)})
        return await self.prober.play(self.seeds[1], [mixed(actions, self.seeds[1])], variation=world)

    def _ends(self) -> list[tuple[str, ...]]:
        """The end of each solution: one action fewer than a game must take."""
        few = self.settings.min_steps - 1
        return [self._actions(trace)[-few:] if few else () for trace in self.asked]

    def _probes(self) -> list[str]:
        """What the solutions do before their ends, for all seeds alike."""
        pairs = zip(self.asked, self._ends(), strict=True)
        before = [action for trace, end in pairs for action in self._actions(trace)[: -len(end) or None]]
        every = [action for trace in self.asked for action in self._actions(trace)]
        return list(dict.fromkeys(before or every))[:MAX_PROBES]

    @staticmethod
    def _actions(trace: Trace) -> tuple[str, ...]:
        return trace.solution or ()


def _junk(at: int) -> tuple[str, ...]:
    """All junk, beginning elsewhere for each seed, so that every item is the first action of some game."""
    start = at * 3 % len(JUNK)
    return JUNK[start:] + JUNK[:start]


def _first_line(loaded: Loaded) -> str:
    return loaded.description.strip().partition("\n")[0].strip()[:500] or loaded.class_name
