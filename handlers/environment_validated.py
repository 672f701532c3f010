"""environment.validated -> episode.completed x 2G when accepted, environment.retired when not."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.remember import remember
from handlers.rounds import play_round
from schemas.events import EnvironmentRetired, EnvironmentValidated
from schemas.words import RetireReason
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[EnvironmentValidated], services: Services) -> None:
    """Play the first round of an accepted environment; free the slot of a rejected one."""
    data = stored.event.data
    if not data.accepted:
        retired = EnvironmentRetired(
            environment=data.environment, round=0, turn=data.turn, reason=RetireReason.REJECTED
        )
        await services.log.append(retired, cause=stored)
        return
    await remember(services, data.environment)
    await play_round(services, stored, data.environment, 0)


REACTION = Reaction(EnvironmentValidated, handle, concurrent=True)
