"""The state of the run as this process sees it: folded from the log, and kept up to date while events arrive."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from typing import NoReturn

import structlog

from spade_daemon.errors import LogError
from spade_daemon.log.fold import evolve
from spade_daemon.log.log import Log
from spade_daemon.log.state import EMPTY, State

log = structlog.get_logger()


class Projection:
    """Follows the log and folds it. ``state`` is always the state at ``state.sequence``.

    It stops at the first event that cannot be read or at a gap: whoever waits for it gets the error.
    """

    def __init__(self, log: Log) -> None:
        self.state: State = EMPTY
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._tick = asyncio.Event()

    async def start(self) -> None:
        """Begin to follow; returns when everything is folded that is in the log now.

        Raises:
            LogError: the log cannot be read to its present end.
        """
        end = await self._log.last_sequence()
        self._task = asyncio.create_task(self._follow(), name="projection")
        await self.wait_for(end)

    async def stop(self) -> None:
        """Follow no more. ``state`` stays."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def wait_for(self, sequence: int) -> None:
        """Return when the event at ``sequence`` is folded.

        Raises:
            LogError: it cannot be; the cause is the error at which the fold stopped.
        """
        while self.state.sequence < sequence:
            await self.changed()

    async def changed(self) -> State:
        """The state after the next event. Errors as in ``wait_for``."""
        self._raise_error()
        await self._tick.wait()
        self._raise_error()
        return self.state

    async def failed(self) -> NoReturn:
        """Wait until the fold stops, and raise why. Errors as in ``wait_for``."""
        while True:
            await self.changed()

    async def _follow(self) -> None:
        try:
            async with aclosing(self._log.follow(self.state.sequence + 1)) as events:
                async for stored in events:
                    self.state = evolve(self.state, stored.sequence, stored.event)
                    self._announce()
        except Exception as error:
            self._error = error
            log.error("fold stopped", sequence=self.state.sequence, error=str(error), exc_info=error)
            self._announce()

    def _announce(self) -> None:
        tick, self._tick = self._tick, asyncio.Event()
        tick.set()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise LogError(f"the state cannot be folded beyond {self.state.sequence}: {self._error}") from self._error


async def state_at(log: Log, sequence: int) -> State:
    """The state as it was after the event at ``sequence``, folded anew.

    Raises:
        LogError, UnreadableEvent: the log cannot be read that far.
    """
    state = EMPTY
    async with aclosing(log.read(1, sequence)) as events:
        async for stored in events:
            state = evolve(state, stored.sequence, stored.event)
    return state
