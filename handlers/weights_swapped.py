"""weights.swapped -> turns for the slots that waited: the trainer has consumed what was ready."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.slots import open_free_slots
from schemas.events import WeightsSwapped
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[WeightsSwapped], services: Services) -> None:
    """Put the waiting slots to work."""
    await open_free_slots(services, stored)


REACTION = Reaction(WeightsSwapped, handle)
