"""One running sandbox for each test module, with the support modules of tool use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from spade_daemon.envs.support import support_sources
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import SandboxSettings


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """Hangs end by their CPU time, which a busy host cannot shorten; the wall limits are far away."""
    limits = SandboxSettings(cpu_seconds=2.0, load_timeout=60.0, step_timeout=60.0)
    async with Sandbox(limits, support=support_sources()) as running:
        yield running
