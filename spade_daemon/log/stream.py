"""The stream of a run: how it is created, and how we tell that an existing one is ours."""

from __future__ import annotations

from nats.js.api import DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import NotFoundError

from spade_daemon.errors import LogError
from spade_daemon.log import subjects
from spade_daemon.log.connection import Connection

DUPLICATE_WINDOW = 120.0
"""Seconds for which the server knows message ids. A second guard only: the subject's sequence is the first."""
MARK = {"spade": "log", "format": "1"}
DECISIVE = (
    "subjects",
    "retention",
    "storage",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msgs_per_subject",
    "deny_delete",
    "deny_purge",
    "allow_atomic",
)
"""What makes the stream an append-only log. A stream that differs here is not used."""


def wanted(run: str, replicas: int) -> StreamConfig:
    """The configuration of a run's stream: everything is kept, nothing can be deleted or purged."""
    return StreamConfig(
        name=subjects.stream_name(run),
        description=f"Everything that happened in run {run}",
        subjects=[subjects.all_of(run)],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_msgs=-1,
        max_bytes=-1,
        max_age=0,
        max_msgs_per_subject=-1,
        num_replicas=replicas,
        duplicate_window=DUPLICATE_WINDOW,
        deny_delete=True,
        deny_purge=True,
        allow_direct=True,
        allow_atomic=True,
        metadata=MARK,
    )


async def ensure_stream(connection: Connection, run: str, replicas: int, *, create: bool = True) -> StreamInfo:
    """Create the stream of ``run`` unless it exists. Several callers at once are safe.

    Raises:
        LogError: one of that name exists and is not ours, or the server does not answer.
    """
    config = wanted(run, replicas)

    async def find_or_create() -> StreamInfo:
        try:
            return await connection.js.stream_info(config.name)
        except NotFoundError as error:
            if not create:
                raise LogError(
                    f"run {run!r} has no log at {connection.address}: start it with `spade up`, or correct its name"
                ) from error
            return await connection.js.add_stream(config)

    info = await connection.patiently(f"stream {config.name}", find_or_create)
    if drift := differences(info.config, config):
        raise LogError(
            f"stream {config.name} at {connection.address} is not an append-only log of ours: {drift}; "
            "choose another run name, or restore the stream's settings"
        )
    return info


def differences(found: StreamConfig, config: StreamConfig) -> str:
    """What makes ``found`` unfit, in words; empty when it is fit."""
    wrong = [
        f"{name} is {getattr(found, name)!r}, not {getattr(config, name)!r}"
        for name in DECISIVE
        if (getattr(found, name) or 0) != (getattr(config, name) or 0)
    ]
    if found.sealed:
        wrong.append("it is sealed")
    if found.persist_mode == PersistMode.ASYNC:
        wrong.append("persist_mode async loses acknowledged events")
    return ", ".join(wrong)
