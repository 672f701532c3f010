from __future__ import annotations

from typing import Any

import pytest
from nats.errors import Error as NatsError
from nats.js.api import PersistMode

from spade_daemon.errors import LogError
from spade_daemon.log.connection import Connection
from spade_daemon.log.log import Log
from spade_daemon.log.stream import wanted
from spade_daemon.settings import Settings
from tests.log.facts import incident, logs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_age": 3600.0}, "max_age is 3600"),
        ({"max_msgs": 10}, "max_msgs is 10"),
        ({"max_msgs_per_subject": 1}, "max_msgs_per_subject is 1"),
        ({"deny_delete": False}, "deny_delete is False"),
        ({"deny_purge": False}, "deny_purge is False"),
        ({"allow_atomic": False}, "allow_atomic is"),
        ({"subjects": ["spade.main.run.>"]}, r"subjects is \['spade\.main\.run\.>'\]"),
        ({"persist_mode": PersistMode.ASYNC, "allow_atomic": False}, "persist_mode"),
    ],
)
async def test_a_stream_that_may_forget_is_refused(
    nats_settings: Settings, changes: dict[str, Any], words: str
) -> None:
    connection = await Connection.open(nats_settings, name="test")
    await connection.js.add_stream(wanted("main", 1).evolve(**changes))
    await connection.close()
    with pytest.raises(LogError, match=rf"stream spade-main .*not an append-only log of ours: .*{words}"):
        await Log.open(nats_settings, name="test")


async def test_an_existing_log_is_opened_as_it_is(nats_settings: Settings) -> None:
    async with logs(nats_settings, 1) as (log,):
        await log.append(incident("a"))
    async with logs(nats_settings, 2) as (log, _):
        assert await log.last_sequence() == 1


async def test_nothing_can_be_taken_out_of_it(event_log: Log) -> None:
    await event_log.append(incident("a"))
    js, stream = event_log._connection.js, event_log._stream
    with pytest.raises(NatsError):
        await js.delete_msg(stream, 1)
    with pytest.raises(NatsError):
        await js.purge_stream(stream)
    assert await event_log.last_sequence() == 1


async def test_its_size_is_known(event_log: Log) -> None:
    empty = await event_log.info()
    assert (empty.events, empty.last_sequence, empty.run) == (0, 0, "main")
    await event_log.append(incident("a"))
    await event_log.blobs.put(b"x" * 100)
    info = await event_log.info()
    assert (info.events, info.last_sequence) == (1, 1)
    assert info.bytes > empty.bytes
    assert info.blob_bytes > empty.blob_bytes
    assert event_log.connected
