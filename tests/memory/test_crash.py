"""A process that is killed while it writes leaves a table that can be read, with everything that was acknowledged."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spade_daemon.memory.store import Memory

WRITER = """
import asyncio, sys
from pathlib import Path
import numpy as np
from spade_daemon.memory.store import Memory, MemoryEntry

async def main() -> None:
    memory = await Memory.open(Path(sys.argv[1]), 4)
    start = memory.sequence
    for number in range(start, start + 10_000):
        entry = MemoryEntry(f"e-{number % 40:012x}", "n", "games", "s", "designed", "d", "c" * 2000, "h", 0.5, 0.1, 0.1,
                            number, 1, 1, 1, np.ones(4, dtype=np.float32))
        await memory.upsert([entry], sequence=number + 1)
        print(number + 1, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("writes", [1, 21])
async def test_kill_during_upsert(tmp_path: Path, writes: int) -> None:
    for _ in range(2):
        last = await asyncio.to_thread(write_and_kill, tmp_path, writes)
        memory = await Memory.open(tmp_path, 4)
        entries = await memory.all()
        # The write in flight may have been committed without having been acknowledged.
        assert memory.sequence in (last, last + 1)
        assert len(entries) == len({entry.id for entry in entries}) == min(40, memory.sequence)
        assert max(entry.plays for entry in entries) == memory.sequence - 1
        await memory.close()


def write_and_kill(folder: Path, writes: int) -> int:
    """Kill a writer after at least ``writes`` acknowledged upserts; the last that it acknowledged."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(writes)]
        process.kill()
        lines += process.stdout
    return int([line for line in lines if line.endswith("\n")][-1])
