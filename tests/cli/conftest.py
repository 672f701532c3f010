"""A recorded run on a running nats-server, and ``spade`` as a person calls it."""

from __future__ import annotations

import asyncio
import io
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import orjson
import pytest
import structlog

from spade_daemon import live
from spade_daemon.cli import common
from spade_daemon.cli.main import main
from spade_daemon.log import server
from spade_daemon.settings import Settings
from tests.cli.recorded import Recording, record
from tests.nats_server import settings_in

START_SECONDS = 60.0


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return orjson.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Standard output by lines."""
        return self.out.splitlines()

    def refused(self, code: int, *words: str) -> None:
        """It failed with one line on standard error that holds all ``words``, and printed nothing else."""
        assert (self.code, self.out) == (code, ""), self
        (line,) = self.err.splitlines()
        assert line.startswith("error: "), line
        for word in words:
            assert word in line, line


Spade = Callable[..., Said]


@contextmanager
def serving(settings: Settings) -> Iterator[None]:
    """A nats-server over the settings' home, outside any event loop."""
    server.write_config(settings)
    with subprocess.Popen(server.command(settings), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _listens(settings.nats.port):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def run_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Where the recorded run lives."""
    return settings_in(tmp_path_factory.mktemp("cli") / "home")


@pytest.fixture(scope="session")
def recording(run_settings: Settings) -> Iterator[Recording]:
    """A recorded run whose nats-server is up for the whole session."""
    with serving(run_settings):
        yield asyncio.run(record(run_settings))


@pytest.fixture
def spade(run_settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Spade:
    """Call ``spade`` in this process on the recorded run, or on other ``settings``."""
    monkeypatch.setattr(common, "QUICK", 5.0)

    def call(*arguments: str, settings: Settings = run_settings, stdin: str = "") -> Said:
        monkeypatch.setenv("SPADE_HOME", str(settings.home))
        monkeypatch.setattr(sys, "argv", ["spade", *options(settings), *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        structlog.reset_defaults()
        return Said(ended.value.code if isinstance(ended.value.code, int) else 0, said.out, said.err)

    return call


def options(settings: Settings) -> list[str]:
    """The options that lead ``spade`` to these settings."""
    ports = (f"nats.port={settings.nats.port}", f"nats.monitor_port={settings.nats.monitor_port}")
    return ["--profile", "test", *(word for port in ports for word in ("--set", port))]


@contextmanager
def responding(settings: Settings, state: live.LiveState) -> Iterator[None]:
    """Something that answers as a running daemon does, in a thread of its own."""
    ready, stop = threading.Event(), threading.Event()

    async def answer() -> None:
        user, password = server.credentials(settings)
        connection = await nats.connect(server.url(settings), user=user, password=password)

        async def reply(message: Any) -> None:
            await message.respond(state.model_dump_json().encode())

        await connection.subscribe(live.subject(settings.run), cb=reply)
        await connection.flush()
        ready.set()
        await asyncio.to_thread(stop.wait)
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(answer()))
    thread.start()
    try:
        assert ready.wait(START_SECONDS)
        yield
    finally:
        stop.set()
        thread.join(START_SECONDS)


def servers_of(home: Path) -> list[str]:
    """Command lines of the running nats-servers whose configuration lies in ``home``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(home / "nats-server.conf").encode() in words:
            found.append(b" ".join(words).decode())
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
