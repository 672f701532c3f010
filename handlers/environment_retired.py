"""environment.retired -> document.sampled or environment.replayed: the free slot takes its next turn."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.slots import open_turn
from schemas.events import EnvironmentRetired
from spade_daemon.log.state import Phase
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[EnvironmentRetired], services: Services) -> None:
    """Open the next turn, unless the slot is gone or has moved on."""
    turn = stored.event.data.turn
    slot = services.state.slots.get(turn.slot)
    if slot is None or slot.turn != turn or slot.phase is not Phase.FREE:
        return
    if turn.slot < services.settings.curriculum.slots:
        await open_turn(services, turn.next(), stored)


REACTION = Reaction(EnvironmentRetired, handle)
