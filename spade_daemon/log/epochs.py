"""The epochs of a run: which are known, where each began, and who may still write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from schemas.event import Event
from schemas.events import RunStarted
from spade_daemon.errors import LogError, StaleEpochError
from spade_daemon.log.stored import Stored, counts


@dataclass(slots=True)
class Epochs:
    """Epoch -> its ``run.started``, as far as it was read."""

    started: dict[int, Stored[RunStarted]] = field(default_factory=dict)

    def newest(self) -> int:
        """The newest known epoch; 0 before the first start."""
        return max(self.started, default=0)

    def places(self) -> dict[int, int]:
        """Epoch -> sequence of its ``run.started``."""
        return {epoch: stored.sequence for epoch, stored in self.started.items()}

    def add(self, stored: Stored) -> None:
        """Learn of a ``run.started``."""
        data = stored.event.data
        if not isinstance(data, RunStarted):
            raise LogError(f"event {stored.sequence} is {stored.event.type}, not run.started: the log is damaged")
        self.started[data.epoch] = Stored(stored.sequence, cast(Event[RunStarted], stored.event))

    def fact(self, stored: Stored) -> bool:
        """Whether ``stored`` counts."""
        return counts(stored.event.epoch, stored.sequence, self.places())

    def of_boot(self, boot: str) -> int | None:
        """The epoch that ``boot`` began."""
        return next((epoch for epoch, stored in self.started.items() if stored.event.data.boot == boot), None)

    def require(self, epoch: int) -> None:
        """Refuse to go on under an epoch that is not the newest.

        Raises:
            StaleEpochError: a newer start of this run is in force.
        """
        newest = self.newest()
        if epoch < newest:
            boot = self.started[newest].event.data.boot
            raise StaleEpochError(
                f"epoch {newest} of this run is in force (boot {boot}), this process has epoch {epoch}: "
                "it must stop; only one `spade up` may drive a run"
            )
