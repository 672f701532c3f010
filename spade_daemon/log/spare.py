"""A server for the log of a run that is down, so that its past can be read without starting the run."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from spade_daemon.errors import MissingPartError, UserInputError
from spade_daemon.log import server
from spade_daemon.log.locks import STORE_LOCK, home_lock
from spade_daemon.settings import Settings


@contextlib.asynccontextmanager
async def spare_server(settings: Settings) -> AsyncIterator[Settings]:
    """Start nats-server over the run's store on free ports; yields the settings that reach it.

    Raises:
        UserInputError: there is no store: the run was never started.
        MissingPartError: the server does not start.
    """
    if not server.store_dir(settings).is_dir():
        raise UserInputError(f"run {settings.run!r} has no log in {settings.home}: start it with `spade up`")
    with home_lock(settings.home / STORE_LOCK, "wait until it has ended"):
        nats = settings.nats.model_copy(update={"port": _free_port(), "monitor_port": _free_port()})
        spare = settings.model_copy(update={"nats": nats})
        await asyncio.to_thread(server.write_config, spare)
        process = await asyncio.create_subprocess_exec(
            *server.command(spare), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield spare
        finally:
            if process.returncode is None:
                process.terminate()
            if await process.wait() not in (0, 1, -15):
                raise MissingPartError(
                    f"nats-server ended with {process.returncode}: see its store {server.store_dir(settings)}"
                )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
