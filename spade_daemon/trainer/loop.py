"""The trainer's loop: wait for a batch, train it, publish a checkpoint.

What if the process dies? Before the rename of the checkpoint directory: nothing happened, the batch is planned and
trained again. Between the rename and the event: the complete directory is found and published. After the event: the
next start resumes from it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from schemas.events import CheckpointPublished
from spade_daemon.errors import LogError, StaleEpochError
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.policy.checkpoint import checkpoint_directory, manifest_digest
from spade_daemon.settings import Settings
from spade_daemon.trainer.batch import BatchPlan, plan_batch
from spade_daemon.trainer.canary import canary_of
from spade_daemon.trainer.checkpoint import Making, read_leftover, remove_old, remove_partial, write_checkpoint
from spade_daemon.trainer.engine import BatchAbandoned, Engine, train_batch
from spade_daemon.trainer.memory import release
from spade_daemon.trainer.optimizer_state import TrainerState, read_state
from spade_daemon.trainer.resume import resume
from spade_daemon.trainer.samples import TrainingSample, fetch_samples

log = structlog.get_logger()

HEARTBEAT = 60.0


@dataclass(slots=True)
class Stop:
    """A request to stop, seen by the event loop and by the thread that trains."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    flag: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """Stop as soon as nothing is lost by it: a batch in training is given up."""
        self.flag.set()
        self.asked.set()


@dataclass(slots=True)
class Trainer:
    """One trainer of one run. ``base`` is the directory of version 0, ``canary`` the token ids of the fixed prompt."""

    log: Log
    projection: Projection
    settings: Settings
    base: Path
    canary: tuple[int, ...]
    stop: Stop

    async def run(self) -> None:
        """Train until asked to stop, or until ``trainer.max_checkpoints`` versions exist.

        Raises:
            StaleEpochError: a newer start of this run, or another trainer, is in force.
            CheckpointError: a checkpoint cannot be written or resumed.
            LogError: the log cannot be reached or read.
        """
        await asyncio.to_thread(remove_partial, self.settings)
        if self._finished():
            return
        await self._publish_leftover()
        if self._finished():
            return
        engine = await asyncio.to_thread(resume, self.base, self.projection.state.checkpoint, self.settings)
        while not self._finished():
            plan = await self._next_plan()
            if plan is None:
                return
            try:
                await self._train(engine, plan)
            except BatchAbandoned:
                log.info("batch abandoned on request to stop", policy=plan.policy)
                return

    def _finished(self) -> bool:
        limit = self.settings.trainer.max_checkpoints
        return limit is not None and self.projection.state.version >= limit

    async def _next_plan(self) -> BatchPlan | None:
        """The next batch when it is complete; ``None`` when asked to stop."""
        stopped = asyncio.create_task(self.stop.asked.wait())
        try:
            while not self.stop.asked.is_set():
                changed = asyncio.create_task(self.projection.changed())
                await asyncio.sleep(0)  # It listens before we look, so that no change falls between.
                self._require_epoch()
                if plan := plan_batch(self.projection.state, self.settings):
                    changed.cancel()
                    return plan
                done, _ = await asyncio.wait({changed, stopped}, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                if changed in done:
                    changed.result()
                elif not done:
                    state = self.projection.state
                    log.info("waiting for a batch", policy=state.version, outcomes=len(state.outcomes))
                changed.cancel()
        finally:
            stopped.cancel()
        return None

    def _require_epoch(self) -> None:
        if self.projection.state.epoch > self.log.epoch:
            raise StaleEpochError(
                f"epoch {self.projection.state.epoch} of this run is in force, this trainer has epoch "
                f"{self.log.epoch}: it stops"
            )

    async def _train(self, engine: Engine, plan: BatchPlan) -> None:
        """Train one batch and publish it."""
        samples = await fetch_samples(plan, self.log.blobs)
        if not any(sample.trained_tokens for sample in samples):
            raise LogError(f"the blobs of batch {plan.policy} hold no trained token: the log is damaged")
        log.info("batch begins", policy=plan.policy, groups=len(plan.groups), designs=len(plan.designs))
        await asyncio.to_thread(self._make, engine, plan, samples)
        directory = checkpoint_directory(self.settings.run_home(), plan.policy)
        await self._publish(plan, await asyncio.to_thread(read_state, directory, deep=False))

    def _make(self, engine: Engine, plan: BatchPlan, samples: tuple[TrainingSample, ...]) -> None:
        """The blocking part: gradients, step, directory."""
        began = time.monotonic()
        metrics = train_batch(engine, samples, plan.policy, self.stop.flag.is_set)
        making = Making(
            version=plan.policy,
            parent=plan.policy - 1,
            epoch=self.log.epoch,
            consumed_sequence=plan.through_sequence,
            metrics=metrics | _staleness(plan, samples),
            seconds=time.monotonic() - began,
            canary=canary_of(engine, self.canary),
        )
        directory = write_checkpoint(engine, self.base, making, self.settings)
        log.info("checkpoint written", policy=plan.policy, path=str(directory), **metrics)
        release()

    async def _publish_leftover(self) -> None:
        """Publish a checkpoint that was complete when its trainer died."""
        self._require_epoch()
        state = self.projection.state
        plan = plan_batch(state, self.settings)
        making = (state.version + 1, self.log.epoch, plan.through_sequence if plan else -1)
        leftover = await asyncio.to_thread(read_leftover, self.settings, making)
        if plan is not None and leftover is not None:
            log.info("unpublished checkpoint found", policy=plan.policy)
            await self._publish(plan, leftover)

    async def _publish(self, plan: BatchPlan, made: TrainerState) -> None:
        """Tell the world of a complete directory.

        Raises:
            StaleEpochError: another trainer published this version.
        """
        directory = checkpoint_directory(self.settings.run_home(), plan.policy)
        digest = manifest_digest(directory)
        published = CheckpointPublished(
            policy=plan.policy,
            parent=plan.policy - 1,
            path=str(directory),
            manifest=digest,
            consumed_sequence=plan.through_sequence,
            groups=tuple((group.environment, group.round) for group in plan.groups),
            designs=tuple(design.environment for design in plan.designs),
            dropped=plan.dropped,
            metrics=made.metrics,
            seconds=made.seconds,
            canary=await self.log.blobs.put_record(made.canary),
        )
        stored = await self.log.append(published)
        winner = stored.event.data
        if not stored.won and (not isinstance(winner, CheckpointPublished) or winner.manifest != digest):
            raise StaleEpochError(f"policy {plan.policy} was published by another trainer: this one stops")
        await self.projection.wait_for(stored.sequence)
        log.info("checkpoint published", policy=plan.policy, sequence=stored.sequence)
        await asyncio.to_thread(remove_old, self.projection.state, self.settings)


def _staleness(plan: BatchPlan, samples: tuple[TrainingSample, ...]) -> dict[str, float]:
    """Versions by which the samples lag behind the policy that was trained."""
    lags = [plan.policy - 1 - sample.version_min for sample in samples]
    return {"lag_mean": sum(lags) / len(lags), "lag_max": float(max(lags)), "samples": float(len(samples))}


__all__ = ["Stop", "Trainer"]
