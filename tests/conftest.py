"""Fixtures for every room: a real nats-server, and logs on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spade_daemon.log.log import Log
from spade_daemon.settings import Settings
from tests.nats_server import NatsServer, settings_in


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running nats-server of this test alone."""
    running = NatsServer(settings_in(tmp_path / "home"))
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def nats_settings(nats_server: NatsServer) -> Settings:
    """Settings whose nats-server runs."""
    return nats_server.settings


@pytest.fixture
async def event_log(nats_settings: Settings) -> AsyncIterator[Log]:
    """The log of a fresh run, before its first start."""
    log = await Log.open(nats_settings, name="test")
    yield log
    await log.close()
