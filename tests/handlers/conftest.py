"""One sandbox for each test module, one nats-server and one run for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from spade_daemon.envs.support import support_sources
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import SandboxSettings, Settings
from tests.handlers.scripted import ScriptedServer
from tests.handlers.world import World, opened, settings_for
from tests.nats_server import NatsServer
from tests.policy.helpers import toy_tokenizer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """Limits that a busy host does not reach by chance."""
    limits = SandboxSettings(load_timeout=60.0, step_timeout=60.0, cpu_seconds=2.0)
    async with Sandbox(limits, support=support_sources()) as running:
        yield running


@pytest.fixture(scope="session")
def chat() -> ChatTokens:
    """A token for each byte."""
    return ChatTokens(toy_tokenizer())


@pytest_asyncio.fixture(loop_scope="module")
async def run_settings(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Settings]:
    """Settings of a run whose nats-server is up; ``@pytest.mark.parametrize("run_settings", ...)`` overrides some."""
    server = NatsServer(settings_for(tmp_path / "home", *getattr(request, "param", ())))
    await server.start()
    yield server.settings
    await server.stop()


@pytest.fixture
def policy() -> ScriptedServer:
    """The scripted policy server, at version 0."""
    return ScriptedServer()


@pytest_asyncio.fixture(loop_scope="module")
async def world(
    run_settings: Settings, sandbox: Sandbox, chat: ChatTokens, policy: ScriptedServer
) -> AsyncIterator[World]:
    """A started run."""
    async with opened(run_settings, sandbox, chat, policy) as running:
        yield running
