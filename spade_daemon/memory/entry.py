"""One remembered environment, and its row in LanceDB."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""An embedding of shape (d,), of length 1."""

PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true", "lance-schema:unenforced-primary-key:position": "1"}
"""Without this mark on the key's field, two writers of the same new environment would both insert it."""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """What is remembered of one accepted environment. The log is the truth; this is a projection of it."""

    id: str
    name: str
    setting: str
    skill: str
    origin: str
    description: str
    code: str
    hint: str
    win_rate: float | None
    """Share of plain plays won over all rounds; ``None`` while it has not been played."""
    regret: float | None
    """Of the newest round that counted."""
    regret_se: float | None
    plays: int
    rounds: int
    born: int
    """Sequence of the event that introduced it."""
    last_played: int
    """Sequence of the event that ended its newest round; 0 when it has never been played."""
    vector: Vector = field(compare=False, repr=False)
    """Embedding of description and code."""


COLUMNS = tuple(item.name for item in fields(MemoryEntry))
SEQUENCE = "sequence"
"""Column beside the entry's own: the log sequence that the row's content reflects."""


def table_schema(dimensions: int) -> Any:
    """The Arrow schema of the table of environments."""

    def required(name: str, kind: Any, metadata: dict[str, str] | None = None) -> Any:
        return pa.field(name, kind, nullable=False, metadata=metadata)

    texts = ("name", "setting", "skill", "origin", "description", "code", "hint")
    counts = ("plays", "rounds", "born", "last_played", SEQUENCE)
    return pa.schema(
        [
            required("id", pa.string(), PRIMARY_KEY),
            *(required(name, pa.string()) for name in texts),
            *(pa.field(name, pa.float64()) for name in ("win_rate", "regret", "regret_se")),
            *(required(name, pa.int64()) for name in counts),
            required("vector", pa.list_(pa.float32(), dimensions)),
        ]
    )


def to_rows(entries: Iterable[MemoryEntry], sequence: int, schema: Any) -> Any:
    """An Arrow table of the entries; of several with one id the last counts.

    Text comes from models: what has no UTF-8 form is replaced.
    """
    unique = {entry.id: entry for entry in entries}
    rows = []
    for entry in unique.values():
        row = {name: _storable(getattr(entry, name)) for name in COLUMNS}
        rows.append(row | {SEQUENCE: sequence, "vector": np.asarray(entry.vector, dtype=np.float32).tolist()})
    return pa.Table.from_pylist(rows, schema=schema)


def from_row(row: dict[str, Any]) -> MemoryEntry:
    """The entry of one row as LanceDB returns it; further columns are ignored."""
    values = {name: row[name] for name in COLUMNS}
    return MemoryEntry(**(values | {"vector": np.asarray(row["vector"], dtype=np.float32)}))


def _storable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
