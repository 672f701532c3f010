"""Playing a round: every episode that has not ended yet, arms side by side."""

from __future__ import annotations

import asyncio

import structlog

from schemas.events import EpisodeCompleted
from schemas.words import Arm, Fault
from spade_daemon.log.state import Environment, Round
from spade_daemon.log.stored import Stored
from spade_daemon.roles.agent import Played, Task, play
from spade_daemon.roles.designer import summarise
from spade_daemon.services import Services

log = structlog.get_logger()


def round_is_decided(round_: Round) -> bool:
    """Whether nothing more can change the round: all is played, or the environment itself has failed."""
    if round_.regret is not None:
        return True
    broken = any(episode.fault is Fault.ENVIRONMENT for episode in round_.episodes.values())
    return broken or not round_.missing()


async def play_round(services: Services, cause: Stored, environment_id: str, number: int) -> None:
    """Play what is missing of a round; each episode is appended as it ends, so a crash loses only those in flight."""
    environment = services.state.environments[environment_id]
    round_ = environment.rounds[number]
    if environment.code is None or round_is_decided(round_):
        return
    code = (await services.log.blobs.get(environment.code)).decode()
    async with asyncio.TaskGroup() as group:
        for arm, index, seed in round_.missing():
            task = Task(
                environment=environment.id,
                code=code,
                setting=environment.setting,
                round=number,
                arm=arm,
                play=index,
                seed=seed,
                hint=environment.hint if arm is Arm.HINTED else None,
            )
            group.create_task(_episode(services, cause, environment, task))


async def _episode(services: Services, cause: Stored, environment: Environment, task: Task) -> None:
    async with services.episodes:
        round_ = services.state.environments[environment.id].rounds[task.round]
        if round_is_decided(round_):
            return
        played, attempts = await _play_with_retries(services, task)
    await services.log.append(await _completed(services, task, played, attempts), cause=cause)


async def _play_with_retries(services: Services, task: Task) -> tuple[Played, int]:
    """An infrastructure fault is nobody's: the episode is begun again, up to the limit."""
    limit = services.settings.agent.attempts
    for attempt in range(1, limit + 1):
        played = await play(
            task,
            sandbox=services.sandbox,
            policy=services.policy,
            chat=services.chat,
            settings=services.settings.agent,
        )
        if played.fault is not Fault.INFRASTRUCTURE or attempt == limit:
            return played, attempt
        log.warning(
            "episode begins again",
            environment=task.environment,
            arm=task.arm,
            play=task.play,
            stop=played.stop,
            error=played.record.error,
        )
        await asyncio.sleep(min(30.0, 2.0**attempt))
    raise AssertionError("unreachable: agent.attempts is at least 1")


async def _completed(services: Services, task: Task, played: Played, attempts: int) -> EpisodeCompleted:
    blob = await services.log.blobs.put_record(played.record)
    return EpisodeCompleted(
        environment=task.environment,
        round=task.round,
        arm=task.arm,
        play=task.play,
        seed=task.seed,
        return_=played.return_,
        turns=len(played.record.turns),
        stop=played.stop,
        fault=played.fault,
        attempts=attempts,
        sample=summarise(blob, played.record.samples, played.prompt_tokens),
        seconds=round(played.seconds, 3),
        walls=services.sandbox.walls,
        detail=(played.record.error or "")[:500],
    )
