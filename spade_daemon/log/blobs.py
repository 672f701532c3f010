"""Blobs: what is too large for an event, named by its content. A blob is stored before the event that names it."""

from __future__ import annotations

import asyncio
import zlib
from hashlib import sha256
from typing import TypeVar

from nats.js.api import ObjectMeta, ObjectMetaOptions, ObjectStoreConfig, StorageType
from nats.js.errors import BadObjectMetaError, DigestMismatchError, NotFoundError
from nats.js.object_store import ObjectStore

from schemas.base import Record
from schemas.records import BlobName
from spade_daemon.errors import LogError
from spade_daemon.log import subjects
from spade_daemon.log.connection import Connection

R = TypeVar("R", bound=Record)

CHUNK = 512 << 10
"""Bytes of one message; half of what a server takes by default."""
LEVEL = 6
RAW, ZLIB = b"\0", b"\1"
"""First byte of a stored object: how the rest is to be read."""
GET_TIMEOUT = 20.0


def pack(content: bytes) -> bytes:
    """The stored form: compressed if that makes it smaller."""
    packed = zlib.compress(content, LEVEL)
    return ZLIB + packed if len(packed) < len(content) else RAW + content


def unpack(stored: bytes) -> bytes:
    """The content of a stored form.

    Raises:
        ValueError: it is neither form, or damaged.
    """
    form, rest = stored[:1], stored[1:]
    if form == RAW:
        return rest
    if form == ZLIB:
        try:
            return zlib.decompress(rest)
        except zlib.error as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"unknown form {form!r}")


def blob_name(content: bytes) -> BlobName:
    """Name of ``content``."""
    return sha256(content).hexdigest()


class Blobs:
    """The blobs of one run, in an object store bucket of its server."""

    def __init__(self, connection: Connection, store: ObjectStore) -> None:
        self._connection = connection
        self._store = store

    @classmethod
    async def open(cls, connection: Connection, run: str, replicas: int) -> Blobs:
        """Open the bucket; create it if it is missing."""
        bucket = subjects.bucket_name(run)
        config = ObjectStoreConfig(
            bucket=bucket, description=f"Blobs of run {run}", storage=StorageType.FILE, replicas=replicas
        )

        async def find_or_create() -> ObjectStore:
            try:
                return await connection.js.object_store(bucket)
            except NotFoundError:
                return await connection.js.create_object_store(bucket, config=config)

        return cls(connection, await connection.patiently(f"bucket {bucket}", find_or_create))

    async def put(self, content: bytes) -> BlobName:
        """Store ``content`` unless it is there; its name.

        Raises:
            LogError: the server does not answer.
        """
        name = blob_name(content)
        if not await self.exists(name):
            meta = ObjectMeta(name=name, options=ObjectMetaOptions(max_chunk_size=CHUNK))
            stored = pack(content)

            async def attempt() -> None:
                await self._store.put(name, stored, meta=meta)

            await self._connection.patiently(f"storing blob {name}", attempt)
        return name

    async def get(self, name: BlobName) -> bytes:
        """Content of the blob ``name``, proved against its name.

        Raises:
            LogError: it is not there, it is damaged, or the server does not answer.
        """

        async def attempt() -> bytes:
            # The client waits for ever for a chunk that never comes.
            async with asyncio.timeout(GET_TIMEOUT):
                return (await self._store.get(name)).data or b""

        try:
            content = unpack(await self._connection.patiently(f"fetching blob {name}", attempt))
        except NotFoundError as error:
            raise LogError(f"blob {name} is not in the store: restore the store from a copy") from error
        except (DigestMismatchError, BadObjectMetaError, ValueError) as error:
            raise LogError(f"blob {name} is damaged ({error!r}): restore the store from a copy") from error
        if blob_name(content) != name:
            raise LogError(f"blob {name} is damaged (its content is {blob_name(content)}): restore from a copy")
        return content

    async def exists(self, name: BlobName) -> bool:
        """Whether the blob ``name`` is stored."""

        async def attempt() -> bool:
            try:
                await self._store.get_info(name)
            except NotFoundError:
                return False
            return True

        return await self._connection.patiently(f"looking for blob {name}", attempt)

    async def put_record(self, record: Record) -> BlobName:
        """Store a record as JSON."""
        return await self.put(record.model_dump_json().encode())

    async def get_record(self, cls: type[R], name: BlobName) -> R:
        """Read a record back.

        Raises:
            LogError: as ``get``, or the content does not fit ``cls``.
        """
        content = await self.get(name)
        try:
            return cls.model_validate_json(content)
        except ValueError as error:
            raise LogError(f"blob {name} is not a {cls.__name__}: {error}") from error

    async def size(self) -> int:
        """Bytes that the bucket takes."""
        return int((await self._store.status()).size)
