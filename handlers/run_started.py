"""run.started -> environment.seeded x n, then a turn for each slot.

The same steps run at every start of a daemon (``resume``), so that a run goes on where it stopped even if the server
has forgotten which events were acknowledged.
"""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.remember import remember_missing
from handlers.slots import open_free_slots
from schemas.events import EnvironmentSeeded, RunStarted
from spade_daemon.envs.seeds import load_seeds
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[RunStarted], services: Services) -> None:
    """Seed the environments, bring the memory up to date, and put every slot to work."""
    if stored.event.data.epoch < services.state.epoch:
        return
    await resume(stored, services)


async def resume(cause: Stored[RunStarted], services: Services) -> None:
    """Everything that must hold before a run goes on. Safe to repeat."""
    await _seed(cause, services)
    await remember_missing(services)
    await open_free_slots(services, cause)


async def _seed(cause: Stored[RunStarted], services: Services) -> None:
    last = cause.sequence
    for seed in load_seeds():
        if seed.environment in services.state.environments:
            continue
        code = await services.log.blobs.put(seed.code.encode())
        stored = await services.log.append(
            EnvironmentSeeded(
                environment=seed.environment,
                name=seed.name,
                setting=seed.setting,
                skill=seed.skill,
                description=seed.description,
                code=code,
                hint=seed.hint,
            ),
            cause=cause,
        )
        last = max(last, stored.sequence)
    await services.projection.wait_for(last)


REACTION = Reaction(RunStarted, handle)
