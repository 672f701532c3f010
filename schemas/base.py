"""The base of every record: frozen, strict about unknown fields, and finite numbers only."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable value. Unknown fields are refused, so a typo in a stored fact is found when it is read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Payload(Record):
    """What one event says. ``type`` names the fact, ``version`` its schema, ``key`` makes it unique in a run.

    A subclass sets both class variables. A change of fields raises ``version`` and adds an upcaster in
    ``schemas.upcast``; an old event is never rewritten.
    """

    type: ClassVar[str]
    version: ClassVar[int] = 1

    def key(self) -> str:
        """The last tokens of the subject: dot-separated words of ``[A-Za-z0-9_-]``."""
        raise NotImplementedError
