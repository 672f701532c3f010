"""The memory on a real LanceDB."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest

from spade_daemon.errors import ConfigError
from spade_daemon.memory.entry import MemoryEntry
from spade_daemon.memory.store import KEEP_VERSIONS, OPTIMIZE_EVERY, Memory

MakeEntry = Callable[..., MemoryEntry]

DIMENSIONS = 4
EVIL = [
    "' OR '1'='1",
    "x'; DROP TABLE environments; --",
    "it's",
    'say "hi"',
    "back\\slash\\'",
    "percent % under _",
    "new\nline",
    "nul\x00byte",
    "\u2028\U0001f600",
    "",
]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    opened = await Memory.open(tmp_path / "memory", DIMENSIONS)
    yield opened
    await opened.close()


async def test_what_is_written_is_read_back_whole(memory: Memory, make_entry: MakeEntry) -> None:
    entry = make_entry(3, win_rate=None, regret=None, regret_se=None)
    await memory.upsert([entry], sequence=9)
    found = await memory.get(entry.id)
    assert found == entry
    assert found is not None
    np.testing.assert_array_equal(found.vector, entry.vector)
    assert await memory.get("e-ffffffffffff") is None


async def test_upsert_is_idempotent_and_replaces(memory: Memory, make_entry: MakeEntry) -> None:
    for sequence in (5, 5, 6):
        await memory.upsert([make_entry(1, regret=0.1), make_entry(2)], sequence=sequence)
    await memory.upsert([make_entry(1, regret=0.4)], sequence=7)
    assert [(entry.id[-1], entry.regret) for entry in await memory.all()] == [("1", 0.4), ("2", 0.1)]


async def test_an_older_writer_does_not_overwrite_a_newer_one(memory: Memory, make_entry: MakeEntry) -> None:
    await memory.upsert([make_entry(1, plays=16)], sequence=20)
    await memory.upsert([make_entry(1, plays=8), make_entry(2)], sequence=10)
    assert [entry.plays for entry in await memory.all()] == [16, 8]
    assert memory.sequence == 20


async def test_one_id_twice_in_one_write_is_written_once(memory: Memory, make_entry: MakeEntry) -> None:
    await memory.upsert([make_entry(1, plays=1), make_entry(1, plays=2)], sequence=1)
    assert [entry.plays for entry in await memory.all()] == [2]


async def test_the_sequence_survives_and_never_runs_ahead(tmp_path: Path, make_entry: MakeEntry) -> None:
    first = await Memory.open(tmp_path, DIMENSIONS)
    assert first.sequence == 0
    await first.upsert([], sequence=99)
    assert first.sequence == 0
    await first.upsert([make_entry(1)], sequence=7)
    await first.upsert([make_entry(2)], sequence=4)
    await first.close()
    again = await Memory.open(tmp_path, DIMENSIONS)
    assert again.sequence == 7
    assert len(await again.all()) == 2
    await again.close()


async def test_sequences_tell_what_is_missing(memory: Memory, make_entry: MakeEntry) -> None:
    await memory.upsert([make_entry(1), make_entry(2)], sequence=5)
    await memory.upsert([make_entry(2)], sequence=8)
    assert await memory.sequences() == {make_entry(1).id: 5, make_entry(2).id: 8}


async def test_nearest_gives_the_cosine_whatever_the_length(memory: Memory, make_entry: MakeEntry) -> None:
    entries = [make_entry(number) for number in range(8)]
    await memory.upsert([*entries, make_entry(20, setting="tool_use")], sequence=1)
    probe = entries[3].vector * 5
    found = await memory.nearest(probe, k=3)
    assert found[0][0].id == entries[3].id
    expected = sorted((float(entry.vector @ entries[3].vector) for entry in entries), reverse=True)[:3]
    assert [similarity for _, similarity in found] == pytest.approx(expected, abs=1e-5)
    other = await memory.nearest(probe, k=9, setting="tool_use")
    assert [entry.setting for entry, _ in other] == ["tool_use"]
    assert await memory.nearest(probe, k=0) == []


async def test_nearest_in_an_empty_memory(memory: Memory) -> None:
    assert await memory.nearest(np.ones(DIMENSIONS, dtype=np.float32), k=1) == []


async def test_search_meets_every_condition(memory: Memory, make_entry: MakeEntry) -> None:
    await memory.upsert(
        [
            make_entry(1, regret=0.4, win_rate=0.5),
            make_entry(2, regret=0.4, win_rate=0.9),
            make_entry(3, regret=0.0, win_rate=0.5),
            make_entry(4, regret=None, win_rate=None),
            make_entry(5, regret=0.4, win_rate=0.5, skill="Logic"),
            make_entry(6, regret=0.4, win_rate=0.5, setting="tool_use"),
        ],
        sequence=1,
    )
    probe = make_entry(4).vector
    found = await memory.search(
        probe, skill="Optimization", setting="games", min_regret=0.1, max_win_rate=0.8, limit=10
    )
    assert [entry.id[-1] for entry, _ in found] == ["1"]
    assert len(await memory.search(probe, limit=10)) == 6
    assert len(await memory.search(probe, limit=2)) == 2


@pytest.mark.parametrize("text", EVIL)
async def test_no_text_can_change_a_filter(memory: Memory, make_entry: MakeEntry, text: str) -> None:
    await memory.upsert([make_entry(1), make_entry(2, skill=text, setting=text, id=f"e-{text}")], sequence=1)
    probe = make_entry(1).vector
    assert [entry.skill for entry, _ in await memory.search(probe, skill=text)] == [text]
    assert [entry.setting for entry, _ in await memory.nearest(probe, k=9, setting=text)] == [text]
    found = await memory.get(f"e-{text}")
    assert found is not None and found.skill == text
    assert await memory.search(probe, skill=text + "'") == []
    assert len(await memory.all()) == 2


async def test_text_without_a_utf8_form_is_stored(memory: Memory, make_entry: MakeEntry) -> None:
    await memory.upsert([make_entry(1, code="x = '\ud800'")], sequence=1)
    assert (await memory.all())[0].code == "x = '?'"


async def test_a_vector_of_another_length_is_refused_with_a_remedy(memory: Memory, make_entry: MakeEntry) -> None:
    with pytest.raises(ConfigError, match=r"memory\.embedder"):
        await memory.upsert([make_entry(1, vector=np.ones(3, dtype=np.float32))], sequence=1)
    assert await memory.all() == []


async def test_two_handles_do_not_duplicate_and_see_each_other(tmp_path: Path, make_entry: MakeEntry) -> None:
    one, two = await Memory.open(tmp_path, DIMENSIONS), await Memory.open(tmp_path, DIMENSIONS)
    for number in range(15):
        await asyncio.gather(
            one.upsert([make_entry(number, plays=1)], sequence=number + 1),
            two.upsert([make_entry(number, plays=1)], sequence=number + 1),
        )
    for memory in (one, two):
        assert [entry.id for entry in await memory.all()] == [make_entry(number).id for number in range(15)]
        await memory.close()


async def test_many_writes_are_compacted_while_others_read(memory: Memory, make_entry: MakeEntry) -> None:
    async def read() -> None:
        for _ in range(20):
            await memory.nearest(make_entry(0).vector, k=3)

    async def write() -> None:
        for number in range(OPTIMIZE_EVERY + 1):
            await memory.upsert([make_entry(number)], sequence=number + 1)

    await asyncio.gather(read(), write())
    stats = await memory.stats()
    assert stats.environments == OPTIMIZE_EVERY + 1
    assert stats.fragments <= 3
    assert KEEP_VERSIONS.total_seconds() > 60


async def test_stats(memory: Memory, make_entry: MakeEntry) -> None:
    await memory.upsert([make_entry(1), make_entry(2, regret=None), make_entry(3, skill="Logic")], sequence=5)
    stats = await memory.stats()
    assert (stats.environments, stats.measured, stats.sequence) == (3, 2, 5)
    assert stats.by_skill == {"Optimization": 2, "Logic": 1}
    assert stats.bytes > 0


async def test_drop_forgets_and_goes_on(memory: Memory, make_entry: MakeEntry) -> None:
    await memory.upsert([make_entry(1)], sequence=5)
    await memory.drop()
    assert (await memory.all(), memory.sequence) == ([], 0)
    await memory.upsert([make_entry(2)], sequence=2)
    await memory.upsert([make_entry(2)], sequence=3)
    assert len(await memory.all()) == 1
    assert memory.sequence == 3


async def test_another_dimension_or_a_damaged_table_means_a_rebuild(tmp_path: Path, make_entry: MakeEntry) -> None:
    async def reopened(dimensions: int) -> tuple[int, int]:
        memory = await Memory.open(tmp_path, dimensions)
        found = len(await memory.all()), memory.sequence
        await memory.upsert([make_entry(1, vector=np.ones(dimensions, dtype=np.float32))], sequence=3)
        await memory.close()
        return found

    assert await reopened(4) == (0, 0)
    assert await reopened(4) == (1, 3)
    assert await reopened(8) == (0, 0)
    for data in (tmp_path / "environments.lance" / "data").iterdir():
        data.write_bytes(b"\0" * data.stat().st_size)
    assert await reopened(8) == (0, 0)
    assert await reopened(8) == (1, 3)
