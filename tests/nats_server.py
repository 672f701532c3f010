"""A nats-server of a test: in its own folder, on its own ports, killed and started again at will."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

from spade_daemon.log import server
from spade_daemon.settings import Settings, load

START_TIMEOUT = 60.0


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


def settings_in(home: Path, **nats: Any) -> Settings:
    """Settings of the ``test`` profile with a home folder and ports of their own; ``nats`` fields on top."""
    port, monitor, policy = free_ports(3)
    base = load("test")
    return base.model_copy(
        update={
            "home": home,
            "cache": home / "cache",
            "nats": base.nats.model_copy(update={"port": port, "monitor_port": monitor, **nats}),
            "policy": base.policy.model_copy(update={"port": policy}),
        }
    )


class NatsServer:
    """Our own nats-server, as ``spade`` configures it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it listens."""
        server.write_config(self.settings)
        self._process = await asyncio.create_subprocess_exec(
            *server.command(self.settings),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(START_TIMEOUT):
            while not await self._listens():
                if self._process.returncode is not None:
                    raise RuntimeError(f"nats-server ended with {self._process.returncode}")
                await asyncio.sleep(0.01)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send it ``how`` and wait for its end."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(how)
            await self._process.wait()
        self._process = None

    async def kill(self) -> None:
        """End it as a crash does."""
        await self.stop(signal.SIGKILL)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.settings.nats.port)
        except OSError:
            return False
        writer.close()
        return True
