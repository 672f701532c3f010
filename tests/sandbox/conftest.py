"""One running sandbox for each test module: its start and self-test cost more than most tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from spade_daemon.sandbox import Sandbox
from tests.sandbox.games import SUPPORT, generous


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox with ordinary walls and limits that a loaded machine does not reach by chance."""
    async with Sandbox(generous(), support=SUPPORT) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient() -> AsyncIterator[Sandbox]:
    """The same with limits short enough to wait for."""
    async with Sandbox(generous(load_timeout=1.5, step_timeout=1.5)) as running:
        yield running
