"""The agent's role: one episode, from reset to its end, with every token kept as the sampler returned it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from schemas.records import EpisodeRecord, Turn
from schemas.words import FAULT_OF, Arm, Fault, FinishReason, Setting, StopReason
from spade_daemon.envs.contract import action_of
from spade_daemon.errors import EpisodeFault
from spade_daemon.method.prompts import agent_messages
from spade_daemon.method.returns import episode_return
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.policy.client import Policy
from spade_daemon.policy.tokens import Conversation
from spade_daemon.roles.designer import as_chat
from spade_daemon.sandbox.sandbox import Sandbox, Worker
from spade_daemon.settings import AgentSettings

MIN_REPLY_TOKENS = 8
"""With less of the budget left there is no point in asking for another reply."""


@dataclass(frozen=True, slots=True)
class Task:
    """One episode to play."""

    environment: str
    code: str
    setting: Setting
    round: int
    arm: Arm
    play: int
    seed: int
    hint: str | None
    """Appended to the first observation in the hinted arm; ``None`` in the plain arm."""


@dataclass(frozen=True, slots=True)
class Played:
    """How the episode went."""

    record: EpisodeRecord
    stop: StopReason
    return_: float | None
    seconds: float
    prompt_tokens: int

    @property
    def fault(self) -> Fault | None:
        """Who owns the failure, if it was one."""
        return FAULT_OF[self.stop]


@dataclass(slots=True)
class _Progress:
    """What has happened so far: survives an exception, so that a broken episode is recorded too."""

    turns: list[Turn] = field(default_factory=list)
    observation: str = ""
    conversation: Conversation | None = None
    error: str | None = None


async def play(task: Task, *, sandbox: Sandbox, policy: Policy, chat: ChatTokens, settings: AgentSettings) -> Played:
    """Play one episode to its end. Never raises for a fault: it is in the result, with its owner."""
    began = time.monotonic()
    progress = _Progress()
    try:
        async with asyncio.timeout(settings.episode_timeout), sandbox.open(task.code) as worker:
            stop = await _run(task, worker, progress, policy, chat, settings)
    except EpisodeFault as fault:
        stop, progress.error = fault.stop, str(fault)
    except TimeoutError:
        stop, progress.error = (
            StopReason.DEADLINE,
            f"the episode passed its deadline of {settings.episode_timeout:.0f} s",
        )
    record = _record(task, progress)
    prompt_tokens = sum(len(sample.ids) - sum(sample.trained) for sample in record.samples)
    return Played(record, stop, _return(record, stop), time.monotonic() - began, prompt_tokens)


async def _run(
    task: Task, worker: Worker, progress: _Progress, policy: Policy, chat: ChatTokens, settings: AgentSettings
) -> StopReason:
    first = await worker.reset(task.seed)
    progress.observation = first.observation
    messages = agent_messages(setting=task.setting, observation=first.observation, hint=task.hint, size=settings.prompt)
    conversation = Conversation(chat, as_chat(messages), worker.loaded.tools)
    progress.conversation = conversation
    for _ in range(min(settings.max_turns, worker.loaded.max_turns or settings.max_turns)):
        room = min(settings.max_tokens_per_turn, settings.max_tokens - len(conversation))
        if room < MIN_REPLY_TOKENS:
            return StopReason.TOKEN_BUDGET
        completion = await policy.generate(conversation.prompt_ids, max_tokens=room, temperature=settings.temperature)
        response = conversation.add_reply(completion)
        if completion.finish is not FinishReason.STOP:
            progress.turns.append(Turn(observation=progress.observation, response=response, action=None, reward=None))
            return StopReason.RESPONSE_CUT
        stop = await _step(task, worker, progress, response)
        if stop is not None:
            return stop
        conversation.add_user(progress.observation)
    return StopReason.TURN_LIMIT


async def _step(task: Task, worker: Worker, progress: _Progress, response: str) -> StopReason | None:
    """Execute one reply; the reason to stop, if the environment gave one."""
    action = action_of(response, task.setting)
    step = await worker.step(action)
    progress.turns.append(
        Turn(
            observation=progress.observation,
            response=response,
            action=action,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
        )
    )
    progress.observation = step.observation
    if step.terminated:
        return StopReason.TERMINATED
    return StopReason.TRUNCATED if step.truncated else None


def _record(task: Task, progress: _Progress) -> EpisodeRecord:
    return EpisodeRecord(
        environment=task.environment,
        round=task.round,
        arm=task.arm,
        play=task.play,
        seed=task.seed,
        hint=task.hint,
        turns=tuple(progress.turns),
        final_observation=progress.observation,
        samples=progress.conversation.samples() if progress.conversation else (),
        error=progress.error,
    )


def _return(record: EpisodeRecord, stop: StopReason) -> float | None:
    """``None`` when the fault is not the agent's: such an episode is void."""
    if FAULT_OF[stop] in (Fault.ENVIRONMENT, Fault.INFRASTRUCTURE):
        return None
    rewards = [turn.reward for turn in record.turns if turn.reward is not None]
    return episode_return(rewards, terminated=stop is StopReason.TERMINATED)
