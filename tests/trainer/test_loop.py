"""The trainer on a real log: killed anywhere, it ends where an undisturbed one does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.events import CheckpointPublished, IncidentRaised
from schemas.records import Canary
from spade_daemon.errors import CheckpointError, StaleEpochError
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.policy.checkpoint import checkpoint_directory, open_checkpoint
from spade_daemon.policy.model_store import file_digest
from spade_daemon.settings import Settings
from spade_daemon.trainer.batch import plan_batch
from spade_daemon.trainer.loop import Stop, Trainer
from spade_daemon.trainer.optimizer_state import read_state
from spade_daemon.trainer.resume import resume
from spade_daemon.trainer.samples import fetch_samples
from tests.nats_server import NatsServer, settings_in
from tests.trainer.facts import BOOT, CANARY, begin, train, write_batch

pytestmark = pytest.mark.servers


def configured(settings: Settings, base: Path, **trainer: object) -> Settings:
    fields = {"learning_rate": 0.01, "min_free_gb": 0.0, "micro_batch_tokens": 128, **trainer}
    return settings.model_copy(
        update={
            "model": settings.model.model_copy(update={"name": str(base)}),
            "trainer": settings.trainer.model_copy(update=fields),
        }
    )


async def published(log: Log) -> list[CheckpointPublished]:
    found = [stored.event.data async for stored in log.read()]
    return [data for data in found if isinstance(data, CheckpointPublished)]


def digests(settings: Settings) -> dict[str, str]:
    """Digest of every file of every checkpoint that must not depend on the way there."""
    root = settings.run_home() / "checkpoints"
    return {str(path.relative_to(root)): file_digest(path).sha256 for path in sorted(root.rglob("*.safetensors"))}


@asynccontextmanager
async def prepared(home: Path, base: Path, batches: int, **trainer: object) -> AsyncIterator[tuple[Settings, Log]]:
    """A run with so many batches in its log, on a server of its own."""
    server = NatsServer(settings_in(home))
    await server.start()
    settings = configured(server.settings, base, **trainer)
    log = await Log.open(settings, name="test")
    try:
        await begin(log)
        for number in range(batches):
            await write_batch(log, number)
        yield settings, log
    finally:
        await log.close()
        await server.stop()


@asynccontextmanager
async def trainer_of(settings: Settings, base: Path) -> AsyncIterator[Trainer]:
    log = await Log.open(settings, name="trainer")
    projection = Projection(log)
    try:
        await log.join_epoch(BOOT, timeout=30)
        await projection.start()
        yield Trainer(log, projection, settings, base, CANARY, Stop())
    finally:
        await projection.stop()
        await log.close()


async def test_batches_become_checkpoints(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 2, max_checkpoints=2) as (settings, log):
        await train(settings, base)
        events = await published(log)
        assert [(event.policy, event.parent) for event in events] == [(1, 0), (2, 1)]
        assert [event.groups for event in events] == [(("e-000000000001", 0),), (("e-000000000003", 0),)]
        assert [event.designs for event in events] == [
            ("e-000000000000", "e-000000000001"),
            ("e-000000000002", "e-000000000003"),
        ]
        for event in events:
            assert event.dropped == {}
            assert event.metrics["agent_tokens"] == event.metrics["designer_tokens"] == 60
            assert event.metrics["steps"] == event.policy
            open_checkpoint(Path(event.path), event.policy, event.manifest, deep=True)
            assert event.canary is not None
            assert (await log.blobs.get_record(Canary, event.canary)).ids == CANARY
        assert events[0].canary != events[1].canary
        projection = Projection(log)
        await projection.start()
        assert (projection.state.version, projection.state.outcomes) == (2, ())
        await projection.stop()


async def start_process(settings: Settings, base: Path, home: Path) -> asyncio.subprocess.Process:
    file = home / "settings.json"
    file.write_text(settings.model_dump_json(), encoding="utf-8")
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.trainer.facts",
        str(file),
        str(base),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


async def start_serving(settings: Settings) -> asyncio.subprocess.Process:
    """The trainer as the supervisor starts it."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import asyncio; from spade_daemon.settings import Settings; from spade_daemon.trainer.process import *;"
        f"asyncio.run(run_trainer(Settings.model_validate_json({settings.model_dump_json()!r})))",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "SPADE_BOOT": BOOT},
    )


async def seen(process: asyncio.subprocess.Process, moment: bytes) -> bool:
    """Whether the process says ``moment`` before it ends."""
    assert process.stdout is not None
    async for line in process.stdout:
        if moment in line:
            return True
    return False


async def kill_at(process: asyncio.subprocess.Process, moment: bytes) -> bool:
    """SIGKILL when a line of the log says ``moment``; whether it came to that."""
    said = await seen(process, moment)
    if said:
        process.kill()
    await process.wait()
    return said


@pytest.mark.timeout(900)
async def test_killed_anywhere_it_ends_the_same(tmp_path: Path, base: Path) -> None:
    """SIGKILL in the middle of a step, right after the directory is complete, and right after the event."""
    async with prepared(tmp_path / "calm", base, 2, max_checkpoints=2) as (settings, log):
        await train(settings, base)
        calm = digests(settings)
        expected = [(event.consumed_sequence, event.groups, event.designs) for event in await published(log)]
    async with prepared(tmp_path / "killed", base, 2, max_checkpoints=2) as (settings, log):
        for moment in (b"micro-batch trained", b"checkpoint written", b"checkpoint published"):
            process = await start_process(settings, base, tmp_path)
            assert await kill_at(process, moment), moment
        await train(settings, base)
        assert digests(settings) == calm
        assert [(e.consumed_sequence, e.groups, e.designs) for e in await published(log)] == expected
        assert not list((settings.run_home() / "checkpoints").glob(".tmp-*"))


async def test_a_complete_directory_is_published_without_training_again(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 1, max_checkpoints=1) as (settings, log):
        async with trainer_of(settings, base) as killed:
            plan = plan_batch(killed.projection.state, settings)
            assert plan is not None
            killed._make(resume(base, None, settings), plan, await fetch_samples(plan, killed.log.blobs))
        directory = checkpoint_directory(settings.run_home(), 1)
        made = (directory / "manifest.json").stat()
        await train(settings, base)
        kept = (directory / "manifest.json").stat()
        assert (made.st_ino, made.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)
        assert [event.policy for event in await published(log)] == [1]


async def test_a_second_trainer_of_a_version_stops(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 1) as (settings, log), trainer_of(settings, base) as trainer:
        plan = plan_batch(trainer.projection.state, settings)
        assert plan is not None
        trainer._make(resume(base, None, settings), plan, await fetch_samples(plan, trainer.log.blobs))
        made = read_state(checkpoint_directory(settings.run_home(), 1), deep=True)
        other = CheckpointPublished(
            policy=1,
            parent=0,
            path="/elsewhere",
            manifest="f" * 64,
            consumed_sequence=plan.through_sequence,
            groups=(),
            designs=(),
            dropped={},
            metrics={},
            seconds=1.0,
        )
        await log.append(other)
        with pytest.raises(StaleEpochError, match="another trainer"):
            await trainer._publish(plan, made)


async def test_a_missing_checkpoint_is_not_passed_over(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 2, max_checkpoints=1) as (settings, _):
        await train(settings, base)
        directory = checkpoint_directory(settings.run_home(), 1)
        directory.rename(directory.with_name("moved"))
        with pytest.raises(CheckpointError, match="manifest"):
            await train(configured(settings, base, max_checkpoints=2), base)


async def test_it_waits_and_stops_when_asked(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 0) as (settings, log):
        stop = Stop()
        running = asyncio.create_task(train(settings, base, stop))
        await asyncio.sleep(0.5)
        assert not running.done()
        stop.ask()
        await running
        assert await published(log) == []


async def test_a_newer_start_of_the_run_ends_it(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 0) as (settings, log):
        running = asyncio.create_task(train(settings, base))
        await asyncio.sleep(0.5)
        await begin(log, "boot-2")
        with pytest.raises(StaleEpochError):
            await running


async def test_the_process_trains_then_waits_and_ends_on_sigterm(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 1, max_checkpoints=1) as (settings, log):
        process = await start_serving(settings)
        assert await seen(process, b"training is complete")
        process.terminate()
        await process.communicate()
        assert process.returncode == 0
        (event,) = await published(log)
        assert event.canary is not None
        assert len((await log.blobs.get_record(Canary, event.canary)).ids) > 32


async def test_sigterm_abandons_a_batch(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 1) as (settings, log):
        process = await start_serving(settings)
        assert await seen(process, b"batch begins")
        process.terminate()
        await process.communicate()
        assert process.returncode == 0
        assert len(await published(log)) <= 1


async def test_trouble_with_a_checkpoint_is_an_incident_told_once(tmp_path: Path, base: Path) -> None:
    async with prepared(tmp_path, base, 1, max_checkpoints=1, min_free_gb=1e9) as (settings, log):
        for _ in range(2):
            process = await start_serving(settings)
            _, errors = await process.communicate()
            assert process.returncode == 1
            assert b"CheckpointError" in errors
        found = [stored.event.data async for stored in log.read()]
        (incident,) = [data for data in found if isinstance(data, IncidentRaised)]
        assert "trainer.min_free_gb" in incident.message
        assert incident.source == "trainer"
