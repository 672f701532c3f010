"""Start, loss, replacement and end: nothing may be left behind, whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox import Sandbox
from spade_daemon.sandbox.box import landlock, walls
from tests.sandbox.games import GUESS, game, generous, play_honestly
from tests.sandbox.processes import alive, descendants, open_descriptors, wait_until_gone

ROOT = Path(__file__).parents[2]


def ours(others: set[int]) -> set[int]:
    """What this test has started: other tests of the same process may have children of their own."""
    return descendants(os.getpid()) - others


async def test_three_hundred_episodes_leave_nothing_behind() -> None:
    others = descendants(os.getpid())
    async with Sandbox(generous(max_workers=8)) as sandbox:
        await asyncio.gather(*(play_honestly(sandbox) for _ in range(8)))
        before = open_descriptors(), ours(others)
        for _ in range(10):
            await asyncio.gather(*(play_honestly(sandbox) for _ in range(27)))
            await asyncio.gather(*(_crash(sandbox) for _ in range(3)))
        assert not await asyncio.to_thread(wait_until_gone, ours(others) - before[1])
        assert (open_descriptors(), ours(others)) == before
        assert sorted(sandbox._slots) == sorted(set(sandbox._slots))
        assert len(sandbox._slots) == 16
    assert not ours(others) & before[1]


async def _crash(sandbox: Sandbox) -> None:
    with pytest.raises(EpisodeFault):
        async with sandbox.open(game("os._exit(1)")) as worker:
            await worker.reset(1)


async def test_no_more_workers_than_allowed() -> None:
    async with Sandbox(generous(max_workers=2)) as sandbox:
        both = asyncio.Barrier(2)
        open_now = 0

        async def play() -> None:
            nonlocal open_now
            async with sandbox.open(GUESS) as worker:
                open_now += 1
                await both.wait()
                assert open_now <= 2
                await worker.reset(1)
                open_now -= 1

        await asyncio.gather(*(play() for _ in range(8)))


async def test_a_lost_fork_server_is_replaced_and_tested_again() -> None:
    others = descendants(os.getpid())
    async with Sandbox(generous()) as sandbox:
        lost = sandbox._servers[0]
        with pytest.raises(EpisodeFault) as caught:
            async with sandbox.open(GUESS) as worker:
                await worker.reset(1)
                family = ours(others)
                os.kill(lost.pid, signal.SIGKILL)
                assert await worker._spawned.exit is None
                assert not await asyncio.to_thread(wait_until_gone, family)
                await worker.step("1")
        assert caught.value.stop is StopReason.SANDBOX_LOST
        await play_honestly(sandbox)
        assert sandbox._servers[0] is not lost


async def test_cancelled_episodes_leave_nothing_behind() -> None:
    async with Sandbox(generous()) as sandbox:
        before = open_descriptors(), descendants(os.getpid())
        for delay in (0.0, 0.001, 0.002, 0.005, 0.02):
            tasks = [asyncio.create_task(play_honestly(sandbox)) for _ in range(4)]
            await asyncio.sleep(delay)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await play_honestly(sandbox)
        gone = descendants(os.getpid()) - before[1]
        assert not await asyncio.to_thread(wait_until_gone, gone)
        assert open_descriptors() == before[0]


async def test_the_end_of_the_sandbox_ends_everything() -> None:
    others = descendants(os.getpid())
    async with Sandbox(generous()) as sandbox:
        async with sandbox.open(GUESS, variation=1) as worker:
            await worker.reset(1)
        family = ours(others)
        assert len(family) >= 2
    assert not alive(family)


async def test_variations_have_a_range() -> None:
    async with Sandbox(generous(), variations=1) as sandbox:
        for variation in (-1, 2):
            with pytest.raises(ValueError, match=r"0\.\.1"):
                async with sandbox.open(GUESS, variation=variation):
                    pytest.fail("it opened")


@pytest.mark.parametrize("left_out", [(), (walls.NAMESPACES,)], ids=["own_processes", "shared_processes"])
def test_a_killed_daemon_leaves_no_process(left_out: tuple[str, ...]) -> None:
    if left_out and landlock.version() < landlock.ABI_SCOPE:
        pytest.skip("needs a kernel whose Landlock covers signals")
    command = [sys.executable, "-m", "tests.sandbox.daemon", "3", *left_out]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            while not (line := daemon.stdout.readline()).startswith("walls"):
                assert line, "the daemon ended by itself"
            family = descendants(daemon.pid)
            assert len(family) >= 6
        finally:
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
    assert not wait_until_gone(family)
