"""Every attack ends as it must, and leaves a sandbox that still works."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_daemon.sandbox import Sandbox
from tests.sandbox import hostile
from tests.sandbox.games import play_honestly

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def untouched() -> Iterator[None]:
    """The file that attacks try to make must not be there afterwards."""
    target = Path(hostile.TARGET)
    target.unlink(missing_ok=True)
    yield
    there = target.exists()
    target.unlink(missing_ok=True)
    assert not there


@pytest.mark.parametrize("name", sorted(hostile.ALL))
async def test_attack_is_contained(sandbox: Sandbox, impatient: Sandbox, name: str, untouched: None) -> None:
    if name in hostile.RAW_X86_64 and platform.machine() != "x86_64":
        pytest.skip("the numbers of this attack are those of x86-64")
    attack = hostile.ALL[name]
    await hostile.contain(impatient if attack.stops & hostile.HANG else sandbox, attack)
    await play_honestly(sandbox)


@pytest.mark.parametrize("name", hostile.HARMLESS)
async def test_attack_would_succeed_without_walls(name: str) -> None:
    """An attack that fails anywhere proves nothing about the sandbox."""
    program = hostile.ALL[name].source + "\nprint(AttackEnv().reset()[0])"
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip().splitlines()[-1].startswith("REACHED")
