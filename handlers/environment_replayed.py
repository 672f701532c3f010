"""environment.replayed -> episode.completed x 2G: a remembered environment is played again."""

from __future__ import annotations

from handlers.reaction import Reaction
from handlers.rounds import play_round
from handlers.slots import open_turn
from schemas.events import EnvironmentReplayed
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


async def handle(stored: Stored[EnvironmentReplayed], services: Services) -> None:
    """Play the round, unless another slot already plays this round of this environment: then take another turn."""
    data = stored.event.data
    round_ = services.state.environments[data.environment].rounds.get(data.plan.round)
    if round_ is None or round_.turn != data.turn:
        await open_turn(services, data.turn.next(), stored)
        return
    await play_round(services, stored, data.environment, data.plan.round)


REACTION = Reaction(EnvironmentReplayed, handle, concurrent=True)
