"""From the state to the environment memory: LanceDB is a projection and may be brought up to date at any time."""

from __future__ import annotations

import structlog

from spade_daemon.log.state import Environment
from spade_daemon.memory.embedder import vector_from_bytes
from spade_daemon.memory.store import MemoryEntry
from spade_daemon.services import Services

log = structlog.get_logger()


async def remember(services: Services, environment_id: str) -> None:
    """Write what the state knows of an accepted environment. Idempotent: keyed by the environment."""
    state = services.state
    environment = state.environments[environment_id]
    if environment.accepted and environment.code is not None:
        entry = await entry_of(services, environment)
        await services.memory.upsert([entry], sequence=state.sequence)


async def remember_missing(services: Services) -> None:
    """Write everything that changed after the sequence up to which the memory says it is current."""
    if services.memory.sequence > services.state.sequence:
        log.warning("memory is ahead of the log and is rebuilt", memory=services.memory.sequence)
        await services.memory.drop()
    state, since = services.state, services.memory.sequence
    changed = [
        environment
        for environment in state.environments.values()
        if environment.accepted
        and environment.code is not None
        and max(environment.born, environment.last_played) > since
    ]
    entries = [await entry_of(services, item) for item in sorted(changed, key=lambda item: item.born)]
    if entries:
        await services.memory.upsert(entries, sequence=state.sequence)
        log.info("memory is up to date", environments=len(changed), sequence=state.sequence)


async def entry_of(services: Services, environment: Environment) -> MemoryEntry:
    """The memory's row of an environment; the stored vector is used where the log has one."""
    code = (await services.log.blobs.get(environment.code or "")).decode()
    if environment.embedding is not None:
        vector = vector_from_bytes(await services.log.blobs.get(environment.embedding))
    else:
        vector = (await services.embedder.embed([f"{environment.description}\n\n{code}"]))[0]
    return MemoryEntry(
        id=environment.id,
        name=environment.description.split("\n")[0][:80],
        setting=environment.setting.value,
        skill=environment.skill,
        origin=environment.origin.value,
        description=environment.description,
        code=code,
        hint=environment.hint or "",
        win_rate=environment.win_rate,
        regret=environment.regret,
        regret_se=environment.regret_se,
        plays=environment.plays,
        rounds=len(environment.rounds),
        born=environment.born,
        last_played=environment.last_played,
        vector=vector,
    )
