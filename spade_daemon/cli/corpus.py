"""``spade corpus``: documents in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from spade_daemon.cli.common import Json, chosen_settings, console, print_json
from spade_daemon.corpus.ingest import ingest
from spade_daemon.corpus.store import Corpus

app = typer.Typer(no_args_is_help=True, help="The documents that ground the designer.")


@app.command()
def add(context: typer.Context, paths: list[Path], json: Json = False) -> None:
    """Add .txt, .md, .jsonl and .parquet files, or folders of them. Running it again adds nothing twice."""
    settings = chosen_settings(context)
    corpus = Corpus.open(settings.home / "corpus.sqlite")
    try:
        if json:
            report = ingest(corpus, paths)
            print_json(asdict(report) | {"skipped": {str(k): n for k, n in report.skipped.items()}})
            return
        with console.status("reading") as status:
            report = ingest(corpus, paths, lambda path, so_far: status.update(f"{so_far.added} documents, {path}"))
    finally:
        corpus.close()
    console.print(
        f"added {report.added} documents, {report.duplicates} were there already, skipped "
        f"{sum(report.skipped.values())} ({report.bytes / 1e6:.1f} MB in {report.seconds:.1f} s)"
    )
    for example in report.examples:
        console.print(f"  {example}", style="yellow", markup=False)


@app.command()
def stats(context: typer.Context, json: Json = False) -> None:
    """Count the documents."""
    corpus = Corpus.open(chosen_settings(context).home / "corpus.sqlite")
    try:
        corpus.ensure_default()
        figures = asdict(corpus.stats())
    finally:
        corpus.close()
    if json:
        print_json(figures)
    else:
        for name, value in figures.items():
            console.print(f"{name:<12} {value}", markup=False)
