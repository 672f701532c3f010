"""environment.seeded: a hand-written environment enters the memory."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.remember import remember
from schemas.events import EnvironmentSeeded
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[EnvironmentSeeded], services: Services) -> None:
    """Remember the seed."""
    await remember(services, stored.event.data.environment)


REACTION = Reaction(EnvironmentSeeded, handle)
