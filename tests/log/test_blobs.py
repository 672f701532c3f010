from __future__ import annotations

import asyncio
import contextlib
import random
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import SlotTurn, TokenSample
from spade_daemon.errors import LogError
from spade_daemon.log.blobs import blob_name, pack, unpack
from spade_daemon.log.log import Log
from spade_daemon.settings import Settings
from tests.log.facts import logs
from tests.nats_server import NatsServer

NOISE = random.Random(0).randbytes(3_000_000)


@given(content=st.binary(max_size=2000) | st.binary(max_size=4).map(lambda part: part * 500))
def test_the_stored_form_is_read_back_and_never_much_larger(content: bytes) -> None:
    assert unpack(pack(content)) == content
    assert len(pack(content)) <= len(content) + 1


@given(stored=st.binary(max_size=50))
def test_a_damaged_form_is_a_value_error(stored: bytes) -> None:
    with contextlib.suppress(ValueError):
        unpack(stored)


@pytest.mark.parametrize("content", [b"", b"x", b"text " * 1000, b"a" * 3_000_000, NOISE], ids=len)
async def test_a_blob_comes_back_under_the_digest_of_its_content(event_log: Log, content: bytes) -> None:
    name = await event_log.blobs.put(content)
    assert name == sha256(content).hexdigest()
    assert await event_log.blobs.get(name) == content
    assert await event_log.blobs.exists(name)


async def test_the_same_content_is_stored_once(event_log: Log) -> None:
    name = await event_log.blobs.put(NOISE[:100_000])
    size = await event_log.blobs.size()
    assert await event_log.blobs.put(NOISE[:100_000]) == name
    assert await event_log.blobs.size() == size


async def test_many_writers_of_the_same_content_leave_it_readable(nats_settings: Settings) -> None:
    async with logs(nats_settings, 4) as opened:
        content = NOISE[:2_500_000]
        names = await asyncio.gather(*(log.blobs.put(content) for log in opened))
        assert set(names) == {blob_name(content)}
        found = await asyncio.gather(*(log.blobs.get(names[0]) for log in opened))
        assert all(each == content for each in found)


async def test_what_is_not_there_is_named(event_log: Log) -> None:
    assert not await event_log.blobs.exists("0" * 64)
    with pytest.raises(LogError, match=r"blob 0{64} is not in the store"):
        await event_log.blobs.get("0" * 64)


async def test_content_that_does_not_fit_its_name_is_found(event_log: Log) -> None:
    name = blob_name(b"what it should be")
    await event_log.blobs._store.put(name, pack(b"what it is"))
    with pytest.raises(LogError, match=rf"blob {name} is damaged"):
        await event_log.blobs.get(name)
    await event_log.blobs._store.put(name, b"\x07rubbish")
    with pytest.raises(LogError, match="damaged"):
        await event_log.blobs.get(name)


async def test_a_writer_that_died_before_the_end_leaves_no_blob_and_the_next_one_makes_it(event_log: Log) -> None:
    content = NOISE[:1_500_000]
    name, bucket = blob_name(content), event_log.blobs._store._name
    await event_log._connection.js.publish(f"$O.{bucket}.C.unfinished", content[: 1 << 20])
    assert not await event_log.blobs.exists(name)
    assert await event_log.blobs.put(content) == name
    assert await event_log.blobs.get(name) == content


async def test_blobs_outlive_the_server(nats_server: NatsServer) -> None:
    async with logs(nats_server.settings, 1) as (log,):
        name = await log.blobs.put(NOISE)
        await nats_server.kill()
        await nats_server.start()
        assert await log.blobs.get(name) == NOISE


async def test_records_come_back_as_themselves(event_log: Log) -> None:
    sample = TokenSample(
        ids=tuple(range(4000)),
        trained=tuple(number % 2 == 0 for number in range(4000)),
        logprobs=tuple(-number / 7 for number in range(4000)),
        version_min=1,
        version_max=2,
        temperature=0.7,
    )
    name = await event_log.blobs.put_record(sample)
    assert await event_log.blobs.get_record(TokenSample, name) == sample
    with pytest.raises(LogError, match=rf"blob {name} is not a SlotTurn"):
        await event_log.blobs.get_record(SlotTurn, name)
