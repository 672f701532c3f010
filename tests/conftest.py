"""A real nats-server for every test that wants one."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spade_daemon.log import server
from spade_daemon.settings import Settings, load

START_TIMEOUT = 30.0


def free_ports(count: int) -> list[int]:
    """Distinct ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class NatsServer:
    """Our own nats-server in a folder of the test; it can be killed and started again."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *server.command(self.settings),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(START_TIMEOUT):
            while not await self._answers():
                if self._process.returncode is not None:
                    raise RuntimeError(f"nats-server ended with {self._process.returncode}")
                await asyncio.sleep(0.01)

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.settings.nats.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(how)
            await self._process.wait()
        self._process = None


def settings_in(home: Path, **nats: object) -> Settings:
    """Settings of the ``test`` profile with a home folder and ports of their own."""
    port, monitor, policy = free_ports(3)
    base = load("test")
    section = base.nats.model_copy(update={"port": port, "monitor_port": monitor, **nats})
    return base.model_copy(
        update={
            "home": home,
            "cache": home / "cache",
            "nats": section,
            "policy": base.policy.model_copy(update={"port": policy}),
        }
    )


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running nats-server."""
    running = NatsServer(settings_in(tmp_path / "home"))
    server.write_config(running.settings)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def nats_settings(nats_server: NatsServer) -> Settings:
    """Settings whose nats-server runs."""
    return nats_server.settings
