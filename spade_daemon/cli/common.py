"""What all commands share: options, settings, output, and the log of a run that need not be up."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
import typer
from rich.console import Console

from spade_daemon import settings as settings_module
from spade_daemon.errors import LogError, UserInputError
from spade_daemon.log.locks import UP_LOCK, holder
from spade_daemon.log.log import Log
from spade_daemon.log.projection import state_at
from spade_daemon.log.spare import spare_server
from spade_daemon.log.state import State
from spade_daemon.settings import Settings

T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Profile = Annotated[str | None, typer.Option("--profile", help="cpu, gpu or test.", envvar="SPADE_PROFILE")]
Config = Annotated[Path | None, typer.Option("--config", help="TOML file of settings.", envvar="SPADE_CONFIG")]
Set = Annotated[list[str] | None, typer.Option("--set", help="section.name=value; may be repeated.")]

PIPE_WIDTH = 200
"""Columns of output that is not a terminal: lines are for grep there."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
errors = Console(stderr=True, highlight=False)

QUICK = 3.0
"""Seconds in which a command expects the log's server to answer before it starts one of its own."""


class Chosen:
    """Settings as the options before the command choose them; read when first needed."""

    def __init__(self, profile: str | None, config: Path | None, overrides: tuple[str, ...]) -> None:
        self._arguments = (profile, config, overrides)

    def load(self) -> Settings:
        """The settings. Raises ConfigError with one line."""
        return settings_module.load(*self._arguments)


def chosen_settings(context: typer.Context) -> Settings:
    """Settings of this invocation."""
    chosen: Chosen = context.obj
    return chosen.load()


def patient(settings: Settings, seconds: float) -> Settings:
    """The same settings, with a log server that gets ``seconds`` to answer."""
    nats = settings.nats.model_copy(update={"connect_timeout": seconds})
    return settings.model_copy(update={"nats": nats})


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    return asyncio.run(work)


def print_json(value: Any) -> None:
    """One JSON document on standard output, without colours or wrapping."""
    print(
        orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    )


def print_json_line(value: Any) -> None:
    """One JSON object on one line, flushed: for output that others follow."""
    print(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode(), flush=True)


@contextlib.asynccontextmanager
async def opened_log(settings: Settings) -> AsyncIterator[Log]:
    """The run's log: through its server, or, when the run is down, through one started for this command alone."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            log = await Log.open(patient(settings, QUICK), name="cli", create=False)
        except LogError:
            if settings.nats.url is not None or holder(settings.home / UP_LOCK) is not None:
                raise
            spare = await stack.enter_async_context(spare_server(settings))
            log = await Log.open(spare, name="cli", create=False)
        stack.push_async_callback(log.close)
        yield log


async def folded(log: Log, sequence: int | None = None) -> State:
    """The state of the log, up to ``sequence`` or its end.

    Raises:
        UserInputError: the log ends before ``sequence``.
    """
    end = await log.last_sequence()
    if sequence is not None and not 0 <= sequence <= end:
        raise UserInputError(f"the log has no event {sequence}: it ends with event {end}")
    return await state_at(log, end if sequence is None else sequence)
