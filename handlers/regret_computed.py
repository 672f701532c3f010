"""regret.computed -> environment.retired: the memory learns the figures and the slot is freed."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.remember import remember
from schemas.events import EnvironmentRetired, RegretComputed
from schemas.words import RetireReason
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[RegretComputed], services: Services) -> None:
    """Remember the round and retire the environment from its slot."""
    data = stored.event.data
    await remember(services, data.environment)
    reason = RetireReason.PLAYED if data.void is None else RetireReason.VOID
    await services.log.append(
        EnvironmentRetired(environment=data.environment, round=data.round, turn=data.turn, reason=reason),
        cause=stored,
    )


REACTION = Reaction(RegretComputed, handle)
