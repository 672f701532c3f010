"""One running sandbox for each test module: its start and self-test cost more than most tests."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from spade_daemon.sandbox import Sandbox, server
from tests.sandbox.games import SUPPORT, generous

Sabotage = Callable[[str, str, str], None]


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


@pytest.fixture
def sabotage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sabotage:
    """Change a line in a copy of the sealed programs and let the daemon start that copy."""
    folder = tmp_path / "box"
    shutil.copytree(server.PROGRAM.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(server, "PROGRAM", folder / "start.py")

    def change(file: str, old: str, new: str) -> None:
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")

    return change
