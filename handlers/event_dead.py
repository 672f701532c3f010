"""event.dead -> the next turn of the slot that the dead event held; the fold has freed it."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.slots import open_free_slots
from schemas.events import EventDead
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[EventDead], services: Services) -> None:
    """Put free slots to work."""
    await open_free_slots(services, stored)


REACTION = Reaction(EventDead, handle)
