"""event.dead -> the next turn of the slot that the dead event held, so that one bad event never stops a slot."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.slots import open_turn
from schemas.events import EventDead
from spade_daemon.log.state import Phase
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[EventDead], services: Services) -> None:
    """Find the slot that waits for the dead event's answer and let it go on."""
    dead = stored.event.data.sequence
    for slot in services.state.slots.values():
        if slot.since == dead and slot.phase is not Phase.FREE:
            await open_turn(services, slot.turn.next(), stored)


REACTION = Reaction(EventDead, handle)
