"""``spade status`` and ``spade replay``: the state of a run, live and rebuilt."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from spade_daemon.cli.common import Json, chosen_settings, console, folded, opened_log, print_json, run
from spade_daemon.cli.summary import ProcessLine, figures, panel
from spade_daemon.errors import MissingPartError, SpadeError
from spade_daemon.live import LiveState, ask
from spade_daemon.log.state import State
from spade_daemon.processes import client
from spade_daemon.settings import Settings

Sequence = Annotated[int | None, typer.Option("--to", help="Stop after this sequence.")]


def process_lines(settings: Settings) -> list[ProcessLine]:
    """The supervised processes; empty when the run is down."""
    try:
        return [ProcessLine(p.name, p.state, p.pid, p.uptime) for p in client(settings).processes()]
    except MissingPartError:
        return []


def status(context: typer.Context, json: Json = False) -> None:
    """Processes, versions, slots, counts, regret and win rate by skill, last error."""
    settings = chosen_settings(context)

    async def read() -> tuple[State, dict[str, Any]]:
        async with opened_log(settings) as log:
            info = await log.info()
            lags = [asdict(lag) for lag in await log.consumers()]
            return await folded(log), {"log_bytes": info.bytes, "blob_bytes": info.blob_bytes, "lag": lags}

    state, sizes = run(read())
    lines = process_lines(settings)
    if json:
        listed = [{"name": p.name, "state": p.state, "pid": p.pid, "uptime": p.uptime} for p in lines]
        print_json(figures(state) | sizes | {"processes": listed})
        return
    note = "" if lines else "the run is down: `spade up` goes on where it stopped"
    console.print(panel(state, lines, note))
    busy = [f"{lag['name'].removeprefix('daemon-')} {lag['waiting']}+{lag['in_work']}" for lag in sizes["lag"]]
    behind = [text for text, lag in zip(busy, sizes["lag"], strict=True) if lag["waiting"] or lag["in_work"]]
    console.print(f"lag (waiting + in work)  {'  '.join(behind) or 'none'}", style="dim", markup=False)
    console.print(f"log {sizes['log_bytes'] / 1e6:.1f} MB, blobs {sizes['blob_bytes'] / 1e6:.1f} MB", style="dim")


def replay(context: typer.Context, to: Sequence = None, json: Json = False) -> None:
    """Rebuild the state from the log and print its digest; without --to also compare with the running daemon."""
    settings = chosen_settings(context)

    async def rebuild() -> tuple[State, float, LiveState | None]:
        live = await ask(settings) if to is None else None
        async with opened_log(settings) as log:
            began = time.perf_counter()
            state = await folded(log, live.sequence if live else to)
            return state, time.perf_counter() - began, live

    state, seconds, live = run(rebuild())
    digest = state.digest()
    if json:
        print_json(
            {
                "sequence": state.sequence,
                "digest": digest,
                "seconds": round(seconds, 3),
                "live": live.model_dump() if live else None,
                "agrees": live.digest == digest if live else None,
            }
        )
    else:
        console.print(f"sequence {state.sequence}  digest {digest}  ({seconds:.2f} s)")
        console.print(_comparison(digest, live), style="dim" if live is None else "green")
    if live is not None and live.digest != digest:
        raise SpadeError(
            f"the live daemon's state at sequence {live.sequence} has digest {live.digest}, but the log gives "
            f"{digest}: restart the daemon with `spade up` and report this"
        )


def _comparison(digest: str, live: LiveState | None) -> str:
    if live is None:
        return "no running daemon to compare with"
    return "the live daemon agrees" if live.digest == digest else "the live daemon differs"
