"""``spade memory``: ask the environment memory by meaning."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from spade_daemon.cli.common import Json, chosen_settings, console, print_json, run
from spade_daemon.cli.describe import number
from spade_daemon.errors import UserInputError
from spade_daemon.memory.embedder import Embedder
from spade_daemon.memory.store import Memory, MemoryEntry
from spade_daemon.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Search the remembered environments.")


async def _open(settings: Settings, embedder: Embedder) -> Memory:
    path = settings.run_home() / "memory"
    if not path.is_dir():
        raise UserInputError(f"run {settings.run!r} has no memory yet in {path}: start it with `spade up`")
    return await Memory.open(path, await embedder.dimensions(), repair=False)


@app.command()
def search(
    context: typer.Context,
    text: str,
    skill: Annotated[str | None, typer.Option("--skill")] = None,
    min_regret: Annotated[float | None, typer.Option("--min-regret")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000)] = 10,
    json: Json = False,
) -> None:
    """Environments whose description and code are nearest in meaning to TEXT."""
    settings = chosen_settings(context)

    async def work() -> list[tuple[MemoryEntry, float]]:
        embedder = Embedder.load(settings.memory.embedder)
        memory = await _open(settings, embedder)
        vector = (await embedder.embed([text]))[0]
        return await memory.search(vector, skill=skill, min_regret=min_regret, limit=limit)

    found = run(work())
    if json:
        print_json([_record(entry) | {"similarity": similarity} for entry, similarity in found])
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("similarity", "environment", "origin", "skill", "win rate", "regret", "description"):
        table.add_column(column, no_wrap=True)
    for entry, similarity in found:
        table.add_row(
            f"{similarity:.3f}",
            entry.id,
            entry.origin,
            entry.skill,
            number(entry.win_rate),
            number(entry.regret),
            entry.description.splitlines()[0][:70] if entry.description else "",
        )
    console.print(table, markup=False)


@app.command()
def show(context: typer.Context, environment: str, json: Json = False) -> None:
    """One remembered environment."""
    settings = chosen_settings(context)

    async def work() -> MemoryEntry | None:
        memory = await _open(settings, Embedder.load(settings.memory.embedder))
        return await memory.get(environment)

    entry = run(work())
    if entry is None:
        raise UserInputError(f"the memory has no {environment!r}: see `spade memory search` or `spade env list`")
    if json:
        print_json(_record(entry) | {"code": entry.code})
        return
    for name, value in _record(entry).items():
        console.print(f"{name:<12} {value}", markup=False)
    console.print(entry.code, markup=False)


@app.command()
def stats(context: typer.Context, json: Json = False) -> None:
    """How much is remembered, and up to which event of the log."""
    settings = chosen_settings(context)

    async def work() -> dict[str, Any]:
        memory = await _open(settings, Embedder.load(settings.memory.embedder))
        return asdict(await memory.stats())

    figures = run(work())
    if json:
        print_json(figures)
    else:
        for name, value in figures.items():
            console.print(f"{name:<12} {value}", markup=False)


def _record(entry: MemoryEntry) -> dict[str, Any]:
    names = (
        "id", "name", "setting", "skill", "origin", "description", "hint", "win_rate", "regret", "regret_se", "plays",
        "rounds", "born", "last_played",
    )  # fmt: skip
    return {name: getattr(entry, name) for name in names}
