"""One ``spade`` run of a test: started, watched and stopped as a person would, with its own folder and ports."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from spade_daemon.log.log import Log
from spade_daemon.log.projection import state_at
from spade_daemon.log.state import State
from spade_daemon.processes import client
from spade_daemon.settings import Settings, load
from tests.nats_server import free_ports

POLL = 0.5
REPOSITORY = Path(__file__).parents[2]


class Run:
    """A run in ``home``; ``overrides`` as ``--set`` takes them."""

    def __init__(self, home: Path, *overrides: str, profile: str = "test") -> None:
        port, monitor, policy = free_ports(3)
        self._options = ["--profile", profile]
        ports = (f"nats.port={port}", f"nats.monitor_port={monitor}", f"policy.port={policy}")
        for override in (*ports, *overrides):
            self._options += ["--set", override]
        self.home = home
        self._environment = os.environ | {"SPADE_HOME": str(home), "OMP_WAIT_POLICY": "PASSIVE"}
        self.settings: Settings = load(profile, overrides=(*ports, *overrides)).model_copy(update={"home": home})
        self._up: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """``spade up`` in the background; its output goes to ``up.log``."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "up.log").open("ab") as output:
            self._up = subprocess.Popen(
                [*self._command(), "up", "--no-live"],
                env=self._environment,
                stdout=output,
                stderr=output,
                cwd=REPOSITORY,
            )

    def command(self, *arguments: str, check: int | None = 0) -> str:
        """A command to its end; returns what it printed on standard output."""
        done = subprocess.run(
            [*self._command(), *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=240,
            cwd=REPOSITORY,
        )
        assert check is None or done.returncode == check, done.stderr + done.stdout
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """A command with ``--json``."""
        return orjson.loads(self.command(*arguments, "--json"))

    async def until(self, holds: Callable[[State], bool], seconds: float) -> State:
        """Wait until the state of the log satisfies ``holds``."""
        deadline = time.monotonic() + seconds
        log = await self.open_log()
        try:
            while True:
                state = await state_at(log, await log.last_sequence())
                if holds(state):
                    return state
                assert self._up is None or self._up.poll() is None, self.tail()
                assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {self.tail()}"
                await asyncio.sleep(POLL)
        finally:
            await log.close()

    async def open_log(self) -> Log:
        """A client of the run's log."""
        patient = self.settings.nats.model_copy(update={"connect_timeout": 120.0})
        return await Log.open(self.settings.model_copy(update={"nats": patient}), name="test")

    def pid(self, process: str) -> int:
        """Process id of one supervised process."""
        return next(p.pid for p in client(self.settings).processes() if p.name == process and p.pid)

    def kill(self, process: str) -> None:
        """SIGKILL one supervised process."""
        os.kill(self.pid(process), signal.SIGKILL)

    def interrupt(self, seconds: float = 240) -> int:
        """Ctrl-C; returns the exit code."""
        assert self._up is not None
        self._up.send_signal(signal.SIGINT)
        return self._up.wait(seconds)

    def close(self) -> None:
        """Stop whatever is left."""
        if self._up is not None and self._up.poll() is None:
            self.interrupt()

    def tail(self) -> str:
        """The last lines of every log, for a failure's message."""
        logs = [self.home / "up.log", *sorted((self.settings.run_home() / "logs").glob("*.log"))]
        return "\n".join(
            f"== {path.name}\n" + path.read_text(errors="replace")[-3000:] for path in logs if path.exists()
        )

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "spade_daemon.cli.main", *self._options]
