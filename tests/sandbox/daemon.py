"""A small daemon for tests that kill it: opens a sandbox and workers, says so, waits.

Arguments: how many workers, and names of walls that it shall think this host lacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from spade_daemon.sandbox import Sandbox, selftest
from tests.sandbox.games import GUESS, game, generous, play_honestly


async def main(workers: int) -> None:
    """Workers in all states: loaded, at rest and therefore stopped, and busy in an endless loop."""
    async with Sandbox(generous()) as sandbox, contextlib.AsyncExitStack() as stack:
        await play_honestly(sandbox)
        for number in range(workers):
            worker = await stack.enter_async_context(sandbox.open(GUESS, variation=number % 2))
            await worker.reset(number)
        busy = await stack.enter_async_context(sandbox.open(game("while True: pass")))
        task = asyncio.create_task(busy.reset(1))
        await asyncio.sleep(0.3)
        print("walls", *sandbox.walls, flush=True)
        await asyncio.wait({task}, timeout=300)


if __name__ == "__main__":
    left_out = set(sys.argv[2:])
    selftest.MEASURED = tuple(wall for wall in selftest.MEASURED if wall not in left_out)
    asyncio.run(main(int(sys.argv[1])))
