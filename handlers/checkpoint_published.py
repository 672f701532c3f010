"""checkpoint.published -> weights.swapped for each policy server."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.weights import swap_all
from schemas.events import CheckpointPublished
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[CheckpointPublished], services: Services) -> None:
    """Swap the new version in, unless a newer one is published already."""
    data = stored.event.data
    if data.policy == services.state.version:
        await swap_all(services, data, stored)


REACTION = Reaction(CheckpointPublished, handle)
