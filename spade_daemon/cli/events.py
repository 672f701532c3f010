"""``spade events``: the log as it is, one line an event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from schemas.events import PAYLOADS
from spade_daemon.cli.common import Json, chosen_settings, console, opened_log, print_json, print_json_line, run
from spade_daemon.cli.describe import line, record
from spade_daemon.errors import UserInputError
from spade_daemon.log.log import Log
from spade_daemon.log.stored import Stored

app = typer.Typer(no_args_is_help=True, help="Read the event log.")

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
STYLES = {
    "environment.validated": "cyan",
    "regret.computed": "magenta",
    "checkpoint.published": "green",
    "weights.swapped": "green",
    "swap.failed": "red",
    "event.dead": "red",
    "incident.raised": "red",
}


@app.command()
def tail(
    context: typer.Context,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only this event type; may be repeated.")] = None,
    environment: Annotated[str | None, typer.Option("--environment", help="Only events of this environment.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="An ISO time, or an age such as 10m, 2h, 1d.")] = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Begin with this many past events.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as events arrive.")] = False,
    json: Json = False,
) -> None:
    """Print events, newest last."""
    settings = chosen_settings(context)
    unknown = set(type_ or ()) - set(PAYLOADS)
    if unknown:
        raise UserInputError(f"event type {sorted(unknown)[0]!r} is unknown: choose from {', '.join(PAYLOADS)}")
    after = parse_since(since, datetime.now(UTC)) if since else None

    def wanted(stored: Stored) -> bool:
        event = stored.event
        return (
            (not type_ or event.type in type_)
            and (environment is None or getattr(event.data, "environment", None) == environment)
            and (after is None or event.time >= after)
        )

    async def work() -> None:
        async with opened_log(settings) as log:
            end = await log.last_sequence()
            past = [stored async for stored in log.read(1, end) if wanted(stored)] if end else []
            for stored in past if since else past[max(0, len(past) - lines) :]:
                _show(stored, json)
            if follow:
                async for stored in _live(log, end + 1):
                    if wanted(stored):
                        _show(stored, json)

    run(work())


@app.command()
def show(context: typer.Context, sequence: int, json: Json = False) -> None:
    """Print one event in full."""
    settings = chosen_settings(context)

    async def work() -> Stored | None:
        async with opened_log(settings) as log:
            if not 1 <= sequence <= await log.last_sequence():
                return None
            return await anext(aiter(log.read(sequence, sequence)))

    stored = run(work())
    if stored is None:
        raise UserInputError(f"the log has no event {sequence}: see `spade events tail`")
    if json:
        print_json(record(stored))
    else:
        console.print(line(stored), style="bold", markup=False)
        console.print_json(data=record(stored))


def parse_since(text: str, now: datetime) -> datetime:
    """The moment that ``text`` names: an ISO 8601 time (UTC unless it says otherwise) or an age (``10m``).

    Raises:
        UserInputError: neither.
    """
    try:
        if text and text[-1] in UNITS and text[:-1].isdecimal():
            return now - timedelta(seconds=int(text[:-1]) * UNITS[text[-1]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UserInputError(
            f"--since {text!r}: write an ISO time (2026-01-31T12:00) or an age (10m, 2h, 1d)"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _live(log: Log, start: int) -> AsyncIterator[Stored]:
    return log.follow(start)


def _show(stored: Stored, json: bool) -> None:
    if json:
        print_json_line(record(stored))
    else:
        console.print(line(stored), style=STYLES.get(stored.event.type), soft_wrap=True, markup=False)
