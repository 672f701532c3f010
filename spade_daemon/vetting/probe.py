"""Run an environment in the sandbox and write down what it does. The only part of the gate that does I/O."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from schemas.words import FAULT_OF, Fault
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox.sandbox import Loaded, Sandbox, Worker
from spade_daemon.vetting.policies import Actor
from spade_daemon.vetting.traces import Exchange, Trace

IN_FLIGHT = 4
"""Workers of one probe at a time: the gate must not starve the episodes that are being played."""
MAX_TURNS = 100

T = TypeVar("T")


class Prober:
    """One source in one sandbox. The environment's own faults stand in the traces.

    Every method raises :class:`EpisodeFault` when the infrastructure fails: nothing is known of the environment then.
    """

    def __init__(self, sandbox: Sandbox, source: str) -> None:
        self._sandbox = sandbox
        self._source = source
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._turns = MAX_TURNS

    async def load(self) -> Loaded | str:
        """What the environment says of itself, or why it does not load."""
        try:
            async with self._sandbox.open(self._source) as worker:
                self._turns = min(worker.loaded.max_turns or MAX_TURNS, MAX_TURNS)
                return worker.loaded
        except EpisodeFault as fault:
            return blame(fault)

    async def play(self, seed: int, actors: Sequence[Actor], *, variation: int = 0) -> list[Trace]:
        """One episode for each actor, one after the other in one fresh process. The first fault ends the list."""
        traces: list[Trace] = []
        async with self._room:
            try:
                async with self._sandbox.open(self._source, variation=variation) as worker:
                    for actor in actors:
                        traces.append(await self._episode(worker, seed, actor))
                        if traces[-1].fault is not None:
                            break
            except EpisodeFault as fault:
                traces.append(Trace(seed, fault=blame(fault)))
        return traces

    async def ask(self, seed: int, actor: Actor, *, variation: int = 0) -> tuple[Trace, Trace]:
        """Ask for the solution right after a reset; then reset again in the same process and play.

        Returns:
            The trace with the solution, and that of the second game.
        """
        async with self._room:
            try:
                async with self._sandbox.open(self._source, variation=variation) as worker:
                    asked = await self._solution(worker, seed)
                    return asked, await self._episode(worker, seed, actor)
            except EpisodeFault as fault:
                failed = Trace(seed, fault=blame(fault))
                return failed, failed

    async def _solution(self, worker: Worker, seed: int) -> Trace:
        observation = (await worker.reset(seed)).observation
        try:
            return Trace(seed, observation, solution=await worker.solution())
        except EpisodeFault as fault:
            return Trace(seed, observation, fault=blame(fault))

    async def _episode(self, worker: Worker, seed: int, actor: Actor) -> Trace:
        exchanges: list[Exchange] = []
        first, fault = "", None
        try:
            first = latest = (await worker.reset(seed)).observation
            for _ in range(self._turns):
                action = actor(latest, exchanges)
                if action is None:
                    break
                exchanges.append(await _exchange(worker, action))
                latest = exchanges[-1].observation
                if exchanges[-1].terminated or exchanges[-1].truncated:
                    break
        except EpisodeFault as error:
            fault = blame(error)
        return Trace(seed, first, tuple(exchanges), fault=fault)


async def together(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; the first fault cancels the rest.

    Raises:
        EpisodeFault: the first one.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except* EpisodeFault as faults:
        raise _first(faults) from faults
    return [task.result() for task in tasks]


def blame(fault: EpisodeFault) -> str:
    """The fault in one line, if it is the environment's.

    Raises:
        EpisodeFault: the same, if it is not.
    """
    if FAULT_OF[fault.stop] is not Fault.ENVIRONMENT:
        raise fault
    return f"{fault.stop.value}: {' '.join(str(fault).split())[:300]}"


def _first(faults: BaseExceptionGroup[EpisodeFault]) -> EpisodeFault:
    error = faults.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _exchange(worker: Worker, action: str) -> Exchange:
    step = await worker.step(action)
    info = json.dumps(step.info, sort_keys=True)
    return Exchange(action, step.observation, step.reward, step.terminated, step.truncated, info)
