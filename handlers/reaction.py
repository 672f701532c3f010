"""What every handler module declares: the event it answers, how, and how many at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from schemas.base import Payload
from spade_daemon.log.stored import Stored
from spade_daemon.services import Services


@dataclass(frozen=True, slots=True)
class Reaction:
    """A durable subscription: ``handle`` is called for each event of type ``event``, at least once."""

    event: type[Payload]
    handle: Callable[[Stored[Any], Services], Awaitable[None]]
    concurrent: bool = False
    """Whether one daemon handles as many of these at a time as there are slots; otherwise one by one."""

    @property
    def name(self) -> str:
        """Name of the durable consumer."""
        return "daemon-" + self.event.type.replace(".", "-")
