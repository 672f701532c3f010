"""The store on disk is damaged or comes back shorter: it is said, and nothing is written over the loss."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from spade_daemon.errors import LogError
from spade_daemon.log.log import Log
from spade_daemon.log.server import store_dir
from tests.log.facts import everything, incident, logs, start
from tests.nats_server import NatsServer

EVENTS = 30


def blocks(server: NatsServer) -> list[Path]:
    return sorted(store_dir(server.settings).rglob("spade-main/msgs/*.blk"))


async def fill(server: NatsServer) -> None:
    async with logs(server.settings, 1) as (log,):
        await start(log)
        for number in range(EVENTS):
            await log.append(incident(f"i{number}", "m" * 200))


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "stop"])
@pytest.mark.parametrize("seed", range(4))
async def test_a_flipped_bit_in_the_store_is_never_silent(nats_server: NatsServer, crash: bool, seed: int) -> None:
    await fill(nats_server)
    await (nats_server.kill() if crash else nats_server.stop())
    (block,) = blocks(nats_server)
    content = bytearray(block.read_bytes())
    place = random.Random(seed).randrange(len(content))
    content[place] ^= 1
    block.write_bytes(content)
    await nats_server.start()
    with pytest.raises(LogError, match=r"gap|digest|no longer holds|restore"):
        async with logs(nats_server.settings, 1) as (log,):
            await everything(log)


async def test_an_older_store_is_not_continued_unless_a_person_says_so(nats_server: NatsServer, tmp_path: Path) -> None:
    settings = nats_server.settings
    async with logs(settings, 1) as (log,):
        await start(log)
    await nats_server.stop()
    shutil.copytree(store_dir(settings), tmp_path / "copy")
    await nats_server.start()
    async with logs(settings, 1) as (log,):
        await log.join_epoch(None, 5)
        await log.append(incident("a"))
    await nats_server.stop()
    shutil.rmtree(store_dir(settings))
    shutil.copytree(tmp_path / "copy", store_dir(settings))
    await nats_server.start()
    with pytest.raises(LogError, match=r"no longer holds event 2 .*log\.mark"):
        await Log.open(settings, name="test")
    (settings.run_home() / "log.mark").unlink()
    async with logs(settings, 1) as (log,):
        assert await log.last_sequence() == 1


async def test_an_unreadable_mark_is_no_reason_to_stop(nats_server: NatsServer) -> None:
    await fill(nats_server)
    mark = nats_server.settings.run_home() / "log.mark"
    for content in (b"", b"{", b"[]", b'{"sequence": "x", "event": 1}'):
        mark.write_bytes(content)
        async with logs(nats_server.settings, 1) as (log,):
            assert await log.last_sequence() == EVENTS + 1
