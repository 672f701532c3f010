"""``spade up`` and ``spade down``: start the run's processes, show what they do, stop them in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich.live import Live

from schemas.events import RunStopped, WeightsSwapped
from spade_daemon import supervise
from spade_daemon.cli.common import chosen_settings, console, errors, patient, print_json_line
from spade_daemon.cli.describe import line, record
from spade_daemon.cli.status import process_lines
from spade_daemon.cli.summary import ProcessLine, panel
from spade_daemon.doctor import preflight
from spade_daemon.errors import LogError, MissingPartError, SpadeError, UserInputError
from spade_daemon.log.fold import evolve
from spade_daemon.log.locks import STORE_LOCK, UP_LOCK, holder, home_lock
from spade_daemon.log.log import Log
from spade_daemon.log.state import EMPTY, State
from spade_daemon.log.stored import Stored
from spade_daemon.resources import resource
from spade_daemon.settings import Settings
from spade_daemon.supervise import Supervisor

LAST_BYTES = 20_000
REFRESH = 1.0
"""Seconds between two looks at the processes."""


def up(
    context: typer.Context,
    live: Annotated[
        bool, typer.Option("--live/--no-live", help="Show a panel instead of a line for each event.")
    ] = True,
    until: Annotated[
        int | None, typer.Option("--until", help="Stop in order after this many new versions are served.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Start the run, or go on with it: log, policy server, daemon and trainer. Ctrl-C stops all in order."""
    settings = chosen_settings(context)
    (settings.home).mkdir(parents=True, exist_ok=True, mode=0o700)
    with home_lock(settings.home / UP_LOCK), home_lock(settings.home / STORE_LOCK, "a command reads its log: wait"):
        for finding in preflight(settings):
            if not finding.ok:
                raise MissingPartError(f"{finding.part}: {finding.detail}; {finding.remedy}")
        from spade_daemon.policy.models import ensure_model

        ensure_model(settings)
        boot = uuid4().hex
        supervisor = supervise.start(settings, boot)
        try:
            asyncio.run(_watch(settings, boot, supervisor, live and console.is_terminal and not json, until, json))
        finally:
            console.print("stopping: trainer, daemon, policy server, log", style="dim")
            orderly = supervisor.stop()
            console.print(
                "stopped; `spade up` goes on from here" if orderly else "stopped after a kill; nothing is lost"
            )


def down(context: typer.Context) -> None:
    """Stop a run that was started elsewhere on this machine, in order."""
    settings = chosen_settings(context)
    pid = holder(settings.home / UP_LOCK)
    if pid is None:
        raise UserInputError(f"no run is up in {settings.home}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + supervise.stop_seconds(resource("supervisord.conf"))
    while holder(settings.home / UP_LOCK) == pid:
        if time.monotonic() > deadline:
            raise SpadeError(f"process {pid} has not stopped yet: look with `spade status`")
        time.sleep(0.2)
    console.print("stopped")


async def _watch(
    settings: Settings, boot: str, supervisor: Supervisor, live: bool, until: int | None, json: bool
) -> None:
    """Show the run until a signal, the wished number of swaps, or the end of supervisord."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    view = _View(live=live, json=json)
    follower = asyncio.create_task(_follow(settings, view, stop, until))
    try:
        with view.shown():
            while not stop.is_set():
                if not supervisor.running():
                    raise MissingPartError(f"supervisord ended: see {settings.run_home() / 'logs'}")
                if follower.done():
                    follower.result()
                view.processes = await asyncio.to_thread(process_lines, settings)
                view.trouble(await asyncio.to_thread(_troubles, settings, view.processes))
                view.refresh()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), REFRESH)
    finally:
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        await _record_stop(settings, boot, "stopped by a person or the system")


async def _follow(settings: Settings, view: _View, stop: asyncio.Event, until: int | None) -> None:
    """Fold the log as it grows and show each event."""
    log = await Log.open(patient(settings, 120.0), name="up")
    try:
        begin = await log.last_sequence()
        swapped: set[int] = set()
        async for stored in log.follow(1):
            view.take(stored, show=stored.sequence > begin)
            data = stored.event.data
            if stored.sequence > begin and isinstance(data, WeightsSwapped) and data.policy > 0:
                swapped.add(data.policy)
            if until is not None and len(swapped) >= until:
                stop.set()
    finally:
        await log.close()


async def _record_stop(settings: Settings, boot: str, reason: str) -> None:
    """Note the stop in the log, if the log is there and our epoch is in force; a stop must not fail over it."""
    try:
        log = await Log.open(patient(settings, 2.0), name="up")
        try:
            epoch = await log.join_epoch(boot, 0.5)
            await log.append(RunStopped(epoch=epoch, reason=reason))
        finally:
            await log.close()
    except LogError as error:
        console.print(f"the stop is not in the log: {error}", style="dim", markup=False)


def _troubles(settings: Settings, processes: list[ProcessLine]) -> list[str]:
    """What processes that do not stay up said last."""
    found = []
    for process in processes:
        if process.state in ("BACKOFF", "FATAL"):
            said = last_error(settings.run_home() / "logs" / f"{process.name}.log")
            found.append(f"{process.name} does not stay up: {said}")
    return found


def last_error(path: Path) -> str:
    """The last ``error:`` line of a log, else its last line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return f"see {path}"
    failed = [line for line in lines if line.startswith("error:")]
    return (failed or lines or [f"see {path}"])[-1][:500]


class _View:
    """What a person sees: a panel that is drawn anew, or a line for each event."""

    def __init__(self, *, live: bool, json: bool) -> None:
        self.processes: list[ProcessLine] = []
        self._state: State = EMPTY
        self._troubles: list[str] = []
        self._json = json
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="visible") if live else None

    @contextlib.contextmanager
    def shown(self):  # type: ignore[no-untyped-def]
        with self._live or contextlib.nullcontext():
            yield

    def take(self, stored: Stored, *, show: bool) -> None:
        """Fold one event, and print it if it is new."""
        self._state = evolve(self._state, stored.sequence, stored.event)
        if not show:
            return
        if self._json:
            print_json_line(record(stored))
        else:
            cut = self._live is not None  # beside the panel one line each; in a log file the whole text
            console.print(line(stored), markup=False, soft_wrap=not cut, no_wrap=cut, overflow="ellipsis")

    def trouble(self, found: list[str]) -> None:
        """Say what is wrong, once for each change."""
        for text in found:
            if text not in self._troubles:
                errors.print(text, style="red", markup=False, soft_wrap=True)
        self._troubles = found

    def refresh(self) -> None:
        """Draw the panel."""
        if self._live is not None:
            self._live.update(panel(self._state, self.processes, "Ctrl-C stops everything in order"), refresh=True)
