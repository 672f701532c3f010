"""``spade schemas``: the AsyncAPI document of the events, made from their models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI

from schemas.event import Event
from schemas.events import PAYLOADS
from spade_daemon.cli.common import chosen_settings, console
from spade_daemon.log import subjects

VERSION = "0.1.0"


def document(run: str) -> AsyncAPI:
    """One channel an event type, with the JSON schema of its envelope and payload."""
    broker = NatsBroker()
    for name, payload in PAYLOADS.items():
        broker.publisher(
            subjects.filter_for(run, name),
            schema=Event[payload],  # type: ignore[valid-type]
            title=name,
            description=(payload.__doc__ or "").strip(),
        )
    return AsyncAPI(
        broker,
        title="spade-daemon events",
        version=VERSION,
        description="Facts on the JetStream log of one run. Subject: spade.<run>.<event type>.<key>.",
    )


def schemas(
    context: typer.Context,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file.")] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="YAML instead of JSON.")] = False,
) -> None:
    """Print the AsyncAPI document of the events."""
    specification = document(chosen_settings(context).run).to_specification()
    text = specification.to_yaml() if yaml else specification.to_json()
    if output is None:
        print(text)
    else:
        output.write_text(text, encoding="utf-8")
        console.print(f"wrote {output}")
