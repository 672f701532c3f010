"""``spade logs``: the structured log lines of the processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from spade_daemon.cli.common import Json, chosen_settings, console
from spade_daemon.errors import UserInputError

app = typer.Typer(no_args_is_help=True, help="Read the log lines of the processes.")

PROCESSES = ("nats", "policy", "daemon", "trainer")
LEVELS = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}
POLL = 0.3
SHOWN_FIRST = ("time", "level", "event", "process")


@app.command()
def tail(
    context: typer.Context,
    process: Annotated[str, typer.Argument(help="nats, policy, daemon or trainer.")] = "daemon",
    lines: Annotated[int, typer.Option("-n", "--lines")] = 40,
    follow: Annotated[bool, typer.Option("-f", "--follow")] = False,
    json: Json = False,
) -> None:
    """Print the last lines of a process, and go on with -f."""
    if process not in PROCESSES:
        raise UserInputError(f"process {process!r} is unknown: choose from {', '.join(PROCESSES)}")
    path = chosen_settings(context).run_home() / "logs" / f"{process}.log"
    if not path.is_file():
        raise UserInputError(f"{path} does not exist: was the run ever started with `spade up`?")
    last, end = _last(path, lines)
    for text in last:
        _show(text, json)
    if follow:
        for text in _follow(path, end):
            _show(text, json)


def _last(path: Path, count: int) -> tuple[list[str], int]:
    """The last ``count`` lines, and the position in bytes after them."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - count * 2000))
        return file.read().decode("utf-8", "replace").splitlines()[-count:], file.tell()


def _follow(path: Path, start: int) -> Iterator[str]:
    """New lines from byte ``start`` on, for ever; a rotated file is opened anew."""
    file = path.open(encoding="utf-8", errors="replace")
    file.seek(start)
    while True:
        if text := file.readline():
            yield text.rstrip("\n")
        elif path.exists() and path.stat().st_ino != _inode(file):
            file.close()
            file = path.open(encoding="utf-8", errors="replace")
        else:
            time.sleep(POLL)


def _inode(file: Any) -> int:
    import os

    return os.fstat(file.fileno()).st_ino


def _show(text: str, json: bool) -> None:
    if json:
        print(text, flush=True)
        return
    try:
        fields: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        console.print(text, markup=False, soft_wrap=True)
        return
    rest = "  ".join(f"{key}={value}" for key, value in fields.items() if key not in SHOWN_FIRST)
    words = f"{str(fields.get('time', ''))[11:19]} {fields.get('level', ''):<7} {fields.get('event', '')}  {rest}"
    console.print(words, style=LEVELS.get(str(fields.get("level"))), markup=False, soft_wrap=True)
