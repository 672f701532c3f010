"""How far this machine has seen the log, kept outside the log.

After a crash nats-server drops the end of a damaged block without a word, and a shorter log looks as good as a whole
one. What was seen before and is gone shows the loss, before anything new is written over it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

from spade_daemon.errors import LogError
from spade_daemon.log.files import replace
from spade_daemon.log.stored import Stored

log = structlog.get_logger()

INTERVAL = 1.0
"""Seconds between two writes of the mark: it is a witness, not a record, and may be this old."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that was in the log."""

    sequence: int
    event: str


class HighMark:
    """The newest event that this process has seen, written to ``path`` from time to time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._newest = Mark(0, "")
        self._written = Mark(0, "")
        self._time = time.monotonic()

    def read(self) -> Mark | None:
        """The mark that some process of this machine left, if any."""
        try:
            raw = orjson.loads(self.path.read_bytes())
            return Mark(int(raw["sequence"]), str(raw["event"]))
        except FileNotFoundError:
            return None
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            log.warning("mark of the log is unreadable and ignored", path=str(self.path), error=str(error))
            return None

    def seen(self, stored: Stored) -> None:
        """Take note of ``stored``."""
        if stored.sequence > self._newest.sequence:
            self._newest = Mark(stored.sequence, stored.event.id)
            if time.monotonic() - self._time >= INTERVAL:
                self.save()

    def save(self) -> None:
        """Write the newest mark, unless it is written already."""
        if self._newest != self._written:
            content = orjson.dumps({"sequence": self._newest.sequence, "event": self._newest.event})
            replace(self.path, content, 0o644, durable=False)
            self._written = self._newest
            self._time = time.monotonic()

    def check(self, mark: Mark, found: Stored | None) -> None:
        """Compare ``mark`` with what the log holds at its sequence now.

        Raises:
            LogError: the event is gone, or another one stands there.
        """
        if found is None or found.event.id != mark.event:
            raise LogError(
                f"the log no longer holds event {mark.sequence} ({mark.event}), which was seen before: it was "
                f"truncated or replaced; restore the store from a copy, or delete {self.path} to accept the loss"
            )
