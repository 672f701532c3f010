"""``spade serve``: one process of the run, in the foreground. The supervisor starts these; a person may, too."""

from __future__ import annotations

import asyncio
import os

import typer

from spade_daemon.cli.common import chosen_settings
from spade_daemon.log import server

app = typer.Typer(no_args_is_help=True, help="Run one process in the foreground (the supervisor uses this).")


@app.command()
def nats(context: typer.Context) -> None:
    """The log: nats-server with JetStream on disk."""
    settings = chosen_settings(context)
    server.write_config(settings)
    command = server.command(settings)
    os.execv(command[0], command)


@app.command()
def policy(context: typer.Context) -> None:
    """The policy: vLLM's OpenAI server."""
    from spade_daemon.logs import configure
    from spade_daemon.policy.serve import exec_server

    settings = chosen_settings(context)
    configure(settings.logging, process="policy", run=settings.run)
    exec_server(settings)


@app.command()
def daemon(context: typer.Context) -> None:
    """The daemon: all reactions to events."""
    from spade_daemon.app import run_daemon
    from spade_daemon.logs import configure

    settings = chosen_settings(context)
    configure(settings.logging, process="daemon", run=settings.run)
    asyncio.run(run_daemon(settings))


@app.command()
def trainer(context: typer.Context) -> None:
    """The trainer: batches from the log, new weights into it."""
    from spade_daemon.logs import configure
    from spade_daemon.trainer.process import run_trainer

    settings = chosen_settings(context)
    configure(settings.logging, process="trainer", run=settings.run)
    asyncio.run(run_trainer(settings))
