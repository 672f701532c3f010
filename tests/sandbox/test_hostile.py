"""Every attack ends as it must, and leaves a sandbox that still works."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox import Sandbox
from tests.sandbox import hostile
from tests.sandbox.games import play_honestly
from tests.sandbox.hostile import Attack

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def outcome(sandbox: Sandbox, attack: Attack) -> StopReason | str:
    """How the episode ended: what the attack reported, or the fault."""
    try:
        async with sandbox.open(attack.source) as worker:
            return (await worker.reset(1)).observation
    except EpisodeFault as fault:
        assert len(str(fault)) < 2_500
        assert str(fault).isprintable()
        return fault.stop


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
    ended = await outcome(impatient if attack.stops & hostile.HANG else sandbox, attack)
    assert ended in attack.stops if attack.stops else ended == "held"
    await play_honestly(sandbox)


@pytest.mark.parametrize("name", hostile.HARMLESS)
async def test_attack_would_succeed_without_walls(name: str) -> None:
    """An attack that fails anywhere proves nothing about the sandbox."""
    program = hostile.ALL[name].source + "\nprint(AttackEnv().reset()[0])"
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip().splitlines()[-1].startswith("REACHED")
