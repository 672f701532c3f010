"""How a free slot takes its next turn, and when it waits.

Of ``document.sampled`` and ``environment.replayed`` only one can exist for a turn: the log refuses the second.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from schemas.events import DocumentSampled, EnvironmentReplayed
from schemas.records import PlayPlan, SlotTurn
from schemas.words import Setting
from spade_daemon.corpus.text import cut
from spade_daemon.log.state import Environment, Phase, State
from spade_daemon.log.stored import Stored
from spade_daemon.method.curriculum import Candidate, active_skill, choose_next, play_seeds
from spade_daemon.services import Services
from spade_daemon.settings import Settings
from spade_daemon.trainer.batch import batches_ready

log = structlog.get_logger()


def gate_is_open(state: State, settings: Settings) -> bool:
    """Whether more may be made: not while the trainer has as many batches waiting as the policy lag allows.

    What is made beyond that would be too old to train by the time its turn comes. A run that trains no more plays on.
    """
    last = settings.trainer.max_checkpoints
    if last is not None and state.version >= last:
        return True
    return batches_ready(state, settings) <= settings.curriculum.max_policy_lag


async def open_free_slots(services: Services, cause: Stored[Any]) -> None:
    """Give a turn to every slot that has none, while the gate is open."""
    state = services.state
    fresh = [
        SlotTurn(slot=index, generation=0)
        for index in range(services.settings.curriculum.slots)
        if index not in state.slots
    ]
    waiting = [slot.turn.next() for slot in state.free_slots() if slot.turn.slot < services.settings.curriculum.slots]
    for turn in [*fresh, *waiting]:
        await open_turn(services, turn, cause)


async def open_turn(services: Services, turn: SlotTurn, cause: Stored[Any]) -> None:
    """Begin ``turn`` with a document or a remembered environment, unless the gate is closed."""
    async with services.opening:
        if not gate_is_open(services.state, services.settings):
            log.info("slot waits for the trainer", slot=turn.slot, generation=turn.generation)
            return
        payload = await _choose(services, turn)
        stored = await services.log.append(payload, cause=cause, exclusive=f"*.*.{turn.token()}")
        await services.projection.wait_for(stored.sequence)


async def _choose(services: Services, turn: SlotTurn) -> DocumentSampled | EnvironmentReplayed:
    settings, state = services.settings.curriculum, services.state
    recent = state.recent_designs[-settings.dry_after :]
    choice = choose_next(
        settings.seed,
        turn.slot,
        turn.generation,
        replay_rate=settings.replay_rate,
        replay_when_dry=settings.replay_when_dry,
        dry=len(recent) == settings.dry_after and not any(recent),
        candidates=_candidates(state, services.settings.designer.setting),
    )
    if choice is not None:
        return _replay(services, turn, state.environments[choice])
    return await _document(services, turn)


def _candidates(state: State, setting: Setting) -> list[Candidate]:
    """Remembered environments that may be played again: accepted, of the setting in use, in no slot, not broken."""
    busy = {slot.environment for slot in state.slots.values() if slot.phase is not Phase.FREE}
    return [
        Candidate(
            environment=environment.id,
            regret=environment.regret,
            win_rate=environment.win_rate,
            last_played=environment.last_played,
        )
        for environment in sorted(state.environments.values(), key=lambda item: item.born)
        if environment.accepted
        and environment.setting is setting
        and environment.id not in busy
        and environment.void_rounds == 0
    ]


def _replay(services: Services, turn: SlotTurn, environment: Environment) -> EnvironmentReplayed:
    number = max(environment.rounds, default=-1) + 1
    seeds = play_seeds(environment.id, number, services.settings.agent.plays)
    return EnvironmentReplayed(
        turn=turn,
        environment=environment.id,
        plan=PlayPlan(round=number, seeds=seeds),
        reason="regret" if environment.regret is not None else "unmeasured",
    )


async def _document(services: Services, turn: SlotTurn) -> DocumentSampled:
    settings = services.settings
    skill = active_skill(
        settings.designer.skills,
        settings.designer.skills_per_window,
        turn.slot,
        turn.generation,
        settings.curriculum.slots,
    )
    digest, title, text = "none", "", ""
    if settings.corpus.enabled:
        index = turn.generation * settings.curriculum.slots + turn.slot
        document = await asyncio.to_thread(services.corpus.sample, settings.curriculum.seed, index)
        digest, title, text = document.digest, document.title, cut(document.text, settings.corpus.words)
    return DocumentSampled(
        turn=turn,
        document=digest,
        title=title,
        text=await services.log.blobs.put(text.encode()),
        words=len(text.split()),
        setting=settings.designer.setting,
        skill=skill,
    )
