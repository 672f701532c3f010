"""The policy's real client on a scripted server, and a real sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from spade_daemon.envs.support import support_sources
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.policy.client import Policy
from spade_daemon.policy.server import Server
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import PolicySettings, SandboxSettings
from tests.handlers.scripted import ScriptedServer
from tests.policy.helpers import toy_tokenizer

MAX_LENGTH = 65536


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """Hangs end by their CPU time, which a busy host cannot shorten; the wall limits are far away."""
    limits = SandboxSettings(load_timeout=60.0, step_timeout=60.0, cpu_seconds=1.0)
    async with Sandbox(limits, support=support_sources()) as running:
        yield running


@pytest.fixture(scope="session")
def chat() -> ChatTokens:
    """A token for each byte."""
    return ChatTokens(toy_tokenizer())


@pytest.fixture
def server(chat: ChatTokens) -> ScriptedServer:
    """The scripted policy server, at version 3."""
    return ScriptedServer(version="v000003", chat=chat)


@pytest_asyncio.fixture(loop_scope="module")
async def policy(server: ScriptedServer, chat: ChatTokens) -> AsyncIterator[Policy]:
    """The client that the daemon has."""
    far = Server("http://policy:1", request_timeout=60.0, admin_timeout=10.0, transport=server.transport)
    settings = PolicySettings(retry_seconds=0.1)
    async with Policy([far], stop_ids=chat.stop_ids, max_length=MAX_LENGTH, settings=settings) as client:
        yield client
