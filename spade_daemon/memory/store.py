"""The environment memory in LanceDB: a projection of the log that can be dropped and rebuilt at any time.

No vector index: below 50,000 environments an exact scan is fast enough, and the recall of approximate indices with
default parameters is useless for novelty.
"""

from __future__ import annotations

import asyncio
import functools
import operator
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import lancedb
import numpy as np
import structlog
from lancedb.expr import col, lit

from spade_daemon.errors import ConfigError, UserInputError
from spade_daemon.memory.entry import SEQUENCE, MemoryEntry, Vector, from_row, table_schema, to_rows

__all__ = ["Memory", "MemoryEntry", "MemoryStats"]

log = structlog.get_logger()

TABLE = "environments"
OPTIMIZE_EVERY = 20
"""Writes between two compactions: each write is a version with files of its own."""
KEEP_VERSIONS = timedelta(minutes=15)
"""Old versions stay this long: a reader in another process may still hold one."""
_LANCE_ERRORS = (ValueError, RuntimeError, OSError)
"""What LanceDB raises for a damaged table and for a lost race."""


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Size and state of the memory."""

    environments: int
    by_skill: dict[str, int]
    measured: int
    """Environments with a regret."""
    sequence: int
    fragments: int
    bytes: int


class Memory:
    """Remembered environments of one run. Several processes may have it open; each sees the others' writes at once."""

    def __init__(self, path: Path, dimensions: int, connection: Any, table: Any, sequence: int) -> None:
        self._path, self._dimensions = path, dimensions
        self._connection, self._table = connection, table
        self._sequence = sequence
        self._writes = 0
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path, dimensions: int, *, repair: bool = True) -> Self:
        """Open the memory in folder ``path``, made if absent.

        A table that cannot be read in full, or that has other columns, is dropped: ``sequence`` is then 0 and the
        caller rebuilds it from the log. LanceDB does not sync its files, so a power cut may leave such a table.

        Args:
            path: folder of the run's memory.
            dimensions: length of the vectors.
            repair: drop such a table; whoever only reads, and rebuilds nothing, must not.

        Raises:
            UserInputError: without ``repair``, for such a table.
        """
        path = await asyncio.to_thread(_folder, path)
        # The interval makes every read look for a newer version.
        connection = await lancedb.connect_async(str(path), read_consistency_interval=timedelta(0))
        memory = cls(path, dimensions, connection, None, 0)
        if TABLE in (await connection.list_tables()).tables:
            await memory._open_existing(repair)
        else:
            await memory._create()
        return memory

    @property
    def sequence(self) -> int:
        """Newest log sequence that was written; 0 when the memory is empty.

        It is stored in the rows, so that it can never be ahead of the data it speaks of. Writers that work side by side
        may leave older facts to be written: :meth:`sequences` tells which.
        """
        return self._sequence

    async def upsert(self, entries: Sequence[MemoryEntry], *, sequence: int) -> None:
        """Write entries, each replacing what is remembered under its id. Atomic, and idempotent.

        A row that reflects a later sequence is left as it is, so that writers may come in any order.

        Args:
            entries: what to remember; all of it becomes visible at once.
            sequence: log sequence that the entries reflect.

        Raises:
            ConfigError: a vector has another length than the memory's.
        """
        if not entries:
            return
        for entry in entries:
            if np.shape(entry.vector) != (self._dimensions,):
                raise ConfigError(
                    f"the vector of {entry.id} has shape {np.shape(entry.vector)}, the memory {self._path} holds "
                    f"{self._dimensions} numbers each: set memory.embedder back, or start another run"
                )
        rows = to_rows(entries, sequence, table_schema(self._dimensions))
        async with self._writing:
            merge = self._table.merge_insert("id")
            merge = merge.when_matched_update_all(where=f"source.{SEQUENCE} >= target.{SEQUENCE}")
            await merge.when_not_matched_insert_all().execute(rows)
            self._sequence = max(self._sequence, sequence)
            self._writes += 1
            if self._writes % OPTIMIZE_EVERY == 0:
                await self._compact()

    async def get(self, environment: str) -> MemoryEntry | None:
        """The entry with this id."""
        rows = await self._table.query().where(col("id") == lit(environment)).limit(1).to_list()
        return from_row(rows[0]) if rows else None

    async def sequences(self) -> dict[str, int]:
        """The log sequence that each entry reflects, by id: what is older or absent must be written again."""
        rows = await self._table.query().select(["id", SEQUENCE]).to_list()
        return {row["id"]: row[SEQUENCE] for row in rows}

    async def all(self) -> list[MemoryEntry]:
        """All entries in the order in which they were introduced."""
        entries = [from_row(row) for row in await self._table.query().to_list()]
        return sorted(entries, key=lambda entry: (entry.born, entry.id))

    async def nearest(self, vector: Vector, k: int, setting: str | None = None) -> list[tuple[MemoryEntry, float]]:
        """The ``k`` entries most like ``vector`` with their cosine similarity in [-1, 1], best first."""
        return await self._nearest(vector, [] if setting is None else [col("setting") == lit(str(setting))], k)

    async def search(
        self,
        vector: Vector,
        *,
        skill: str | None = None,
        setting: str | None = None,
        min_regret: float | None = None,
        max_win_rate: float | None = None,
        limit: int = 10,
    ) -> list[tuple[MemoryEntry, float]]:
        """Entries most like ``vector`` among those that meet every given condition; unmeasured ones meet no bound."""
        conditions = []
        if skill is not None:
            conditions.append(col("skill") == lit(skill))
        if setting is not None:
            conditions.append(col("setting") == lit(str(setting)))
        if min_regret is not None:
            conditions.append(col("regret") >= lit(float(min_regret)))
        if max_win_rate is not None:
            conditions.append(col("win_rate") <= lit(float(max_win_rate)))
        return await self._nearest(vector, conditions, limit)

    async def stats(self) -> MemoryStats:
        """Count what is there."""
        rows = await self._table.query().select(["skill", "regret"]).to_list()
        by_skill: dict[str, int] = {}
        for row in rows:
            by_skill[row["skill"]] = by_skill.get(row["skill"], 0) + 1
        disk = await self._table.stats()
        return MemoryStats(
            environments=len(rows),
            by_skill=by_skill,
            measured=sum(row["regret"] is not None for row in rows),
            sequence=self._sequence,
            fragments=int(disk["fragment_stats"]["num_fragments"]),
            bytes=int(disk["total_bytes"]),
        )

    async def optimize(self) -> None:
        """Merge small files and remove versions that no reader can still need."""
        async with self._writing:
            await self._compact()

    async def drop(self) -> None:
        """Forget everything; ``sequence`` is 0 until the log has been projected again."""
        async with self._writing:
            await self._connection.drop_table(TABLE)
            await self._create()

    async def close(self) -> None:
        """Release the handles. What was written stays."""
        self._table.close()
        self._connection.close()

    async def _create(self) -> None:
        self._table = await self._connection.create_table(TABLE, schema=table_schema(self._dimensions), exist_ok=True)
        self._sequence = 0

    async def _open_existing(self, repair: bool) -> None:
        try:
            self._table = await self._connection.open_table(TABLE)
            if not (await self._table.schema()).equals(table_schema(self._dimensions)):
                raise ValueError("its columns are not those of this version")
            rows = await self._table.to_arrow()
        except _LANCE_ERRORS as error:
            if not repair:
                raise UserInputError(
                    f"memory {self._path} cannot be read ({' '.join(str(error).split())[:200]}): set memory.embedder "
                    "to that of the run, or let `spade up` rebuild it"
                ) from error
            log.warning("memory is dropped and will be rebuilt", path=str(self._path), error=str(error)[:300])
            await asyncio.to_thread(shutil.rmtree, self._path / f"{TABLE}.lance")
            await self._create()
            return
        self._sequence = max(rows.column(SEQUENCE).to_pylist(), default=0)

    async def _compact(self) -> None:
        try:
            await self._table.optimize(cleanup_older_than=KEEP_VERSIONS)
        except _LANCE_ERRORS as error:
            # Another process wrote at the same moment. Nothing is lost; the next round compacts both.
            log.warning("memory was not compacted", path=str(self._path), error=str(error)[:300])

    async def _nearest(self, vector: Vector, conditions: list[Any], k: int) -> list[tuple[MemoryEntry, float]]:
        if k <= 0:
            return []
        query = self._table.query().nearest_to(np.asarray(vector, dtype=np.float32)).distance_type("cosine")
        if conditions:
            query = query.where(functools.reduce(operator.and_, conditions))
        rows = await query.limit(k).to_list()
        return [(from_row(row), max(-1.0, min(1.0, 1.0 - row["_distance"]))) for row in rows]


def _folder(path: Path) -> Path:
    # Absolute, because LanceDB takes some relative paths for the name of a cloud database.
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()
