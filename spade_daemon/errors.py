"""Failures and their owners. One root; each boundary has one class, and each message says what, where, what to do."""

from __future__ import annotations

from schemas.words import StopReason


class SpadeError(Exception):
    """Root of all errors that a person is meant to read. The message is one line."""


class ConfigError(SpadeError):
    """A setting is wrong or contradicts another."""


class UserInputError(SpadeError):
    """A file or argument that a person handed in cannot be used."""


class MissingPartError(SpadeError):
    """Something that should be installed or running is not: the message says how to get it."""


class LogError(SpadeError):
    """The log cannot be reached, or does not say what it must."""


class StaleEpochError(LogError):
    """A newer start of this run is in force: this process must stop."""


class EpisodeFault(SpadeError):
    """An episode cannot go on. ``stop`` says why and thereby whose fault it is.

    Raised by the sandbox (environment or infrastructure) and by the policy (infrastructure).
    """

    def __init__(self, stop: StopReason, message: str) -> None:
        super().__init__(message)
        self.stop = stop


class CheckpointError(SpadeError):
    """A checkpoint is incomplete, damaged or does not fit the model."""


class SwapError(SpadeError):
    """A policy server did not take new weights. ``stage`` names the step that failed."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage = stage
