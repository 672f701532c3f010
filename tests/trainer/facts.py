"""A log with something to train in it, and a process that trains from it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from schemas.events import (
    EnvironmentProposed,
    EnvironmentValidated,
    EpisodeCompleted,
    RegretComputed,
    RunStarted,
)
from schemas.records import DesignRecord, EpisodeRecord, PlayPlan, SampleRef, SlotTurn, TokenSample
from schemas.words import Arm, DesignFailure, Setting, StopReason
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.settings import Settings
from spade_daemon.trainer.loop import Stop, Trainer
from tests.trainer.tiny import sample

BOOT = "boot-1"
CANARY = tuple(range(3, 35))
SKILL = "Optimization"


async def begin(log: Log, boot: str = BOOT) -> None:
    await log.take_epoch(boot, lambda epoch: RunStarted(epoch=epoch, boot=boot, slots=1, model="tiny", settings={}))


def tokens(seed: int) -> TokenSample:
    one = sample(seed, 0.0, length=60)
    return TokenSample(
        ids=one.ids, trained=one.trained, logprobs=one.sampler, version_min=0, version_max=0, temperature=1.0
    )


def reference(blob: str) -> SampleRef:
    return SampleRef(blob=blob, prompt_tokens=30, sampled_tokens=30, version_min=0, version_max=0, temperature=1.0)


async def propose(log: Log, number: int, failure: DesignFailure | None) -> str:
    """A design; its environment's id."""
    environment = f"e-{number:012x}"
    record = DesignRecord(environment=environment, prompt=(), response="x", sample=tokens(number))
    await log.append(
        EnvironmentProposed(
            environment=environment,
            turn=SlotTurn(slot=0, generation=number),
            document="d",
            setting=Setting.GAMES,
            skill=SKILL,
            failure=failure,
            code=None,
            sample=reference(await log.blobs.put_record(record)),
        )
    )
    return environment


async def play(log: Log, environment: str, number: int, index: int) -> None:
    record = EpisodeRecord(
        environment=environment,
        round=0,
        arm=Arm.PLAIN,
        play=index,
        seed=index,
        hint=None,
        turns=(),
        final_observation="",
        samples=(tokens(1000 * number + index),),
    )
    await log.append(
        EpisodeCompleted(
            environment=environment,
            round=0,
            arm=Arm.PLAIN,
            play=index,
            seed=index,
            return_=float(index),
            turns=1,
            stop=StopReason.TERMINATED,
            fault=None,
            sample=reference(await log.blobs.put_record(record)),
            seconds=0.1,
            walls=(),
        )
    )


async def write_batch(log: Log, number: int) -> None:
    """Two designs, a failed and a good one, and the two plain plays of the good one: one batch of both roles."""
    await propose(log, 2 * number, DesignFailure.NO_CODE)
    environment = await propose(log, 2 * number + 1, None)
    turn = SlotTurn(slot=0, generation=2 * number + 1)
    await log.append(
        EnvironmentValidated(
            environment=environment,
            turn=turn,
            accepted=True,
            reason=None,
            checks=(),
            description="",
            hint=None,
            embedding=None,
            nearest=None,
            similarity=None,
            plan=PlayPlan(round=0, seeds=(0, 1)),
            walls=(),
        )
    )
    for index in (0, 1):
        await play(log, environment, number, index)
    await log.append(
        RegretComputed(
            environment=environment,
            round=0,
            turn=turn,
            void=None,
            regret=0.1,
            regret_se=None,
            pairs=2,
            plain_mean=0.5,
            hinted_mean=0.6,
            win_rate=0.5,
            components={},
            designer_reward=0.4,
            agent_signal=True,
        )
    )


async def train(settings: Settings, base: Path, stop: Stop | None = None) -> None:
    """A whole trainer, until ``trainer.max_checkpoints`` or ``stop``."""
    log = await Log.open(settings, name="trainer")
    projection = Projection(log)
    try:
        await log.join_epoch(BOOT, timeout=30)
        await projection.start()
        await Trainer(log, projection, settings, base, CANARY, stop or Stop()).run()
    finally:
        await projection.stop()
        await log.close()


if __name__ == "__main__":
    asyncio.run(train(Settings.model_validate_json(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2])))
