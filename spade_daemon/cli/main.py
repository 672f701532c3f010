"""``spade``: the command line. Every error a person can act on is one line and a non-zero exit code.

A command's module is imported when the command is used: some need seconds of imports, and the log's server must not
wait for a vector store it never touches.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog
import typer
from typer.core import TyperGroup
from typer.main import get_command

from spade_daemon.cli.common import Chosen, Config, Profile, Set, errors
from spade_daemon.errors import ConfigError, SpadeError, UserInputError


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives: a function, or a ``Typer`` of further commands."""

    module: str
    name: str
    help: str


COMMANDS = {
    "up": Entry("up", "up", "Start the run, or go on with it. Ctrl-C stops everything in order."),
    "down": Entry("up", "down", "Stop a run that was started elsewhere on this machine."),
    "status": Entry("status", "status", "Processes, versions, slots, counts, regret and win rate, last error."),
    "doctor": Entry("doctor", "doctor", "Check every part and say what to do."),
    "events": Entry("events", "app", "Read the event log: tail, show."),
    "replay": Entry("status", "replay", "Rebuild the state from the log and compare it with the live one."),
    "env": Entry("env", "app", "Environments: list, show, play, vet."),
    "episode": Entry("episode", "app", "Episodes: show."),
    "memory": Entry("memory", "app", "The environment memory: search, show, stats."),
    "corpus": Entry("corpus", "app", "The documents: add, stats."),
    "logs": Entry("logs", "app", "Log lines of the processes: tail."),
    "schemas": Entry("schemas", "schemas", "The AsyncAPI document of the events."),
    "serve": Entry("serve", "app", "Run one process in the foreground (the supervisor does)."),
}


class LazyGroup(TyperGroup):
    """Knows its commands by name and imports each when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        target = getattr(import_module(f"spade_daemon.cli.{entry.module}"), entry.name)
        if not isinstance(target, typer.Typer):
            single = typer.Typer(add_completion=False)
            single.command(cmd_name)(target)
            target = single
        elif not target.registered_callback:
            target.callback()(lambda: None)  # without a callback, a group of one command is taken for that command
        command = get_command(target)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Self-play in adaptive synthetic executable environments, as an event-sourced daemon.",
)


@app.callback()
def options(context: typer.Context, profile: Profile = None, config: Config = None, set_: Set = None) -> None:
    """Options before the command choose the settings."""
    context.obj = Chosen(profile, config and Path(config), tuple(set_ or ()))


def main() -> None:
    """Entry point: 2 for wrong input, 1 for everything else that failed, 130 after Ctrl-C."""
    # What the machinery logs is for the log files; ``serve`` sets up its own. Here a person reads.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        app(standalone_mode=True)
    except (ConfigError, UserInputError) as error:
        _say(error)
        sys.exit(2)
    except SpadeError as error:
        _say(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


def _say(error: SpadeError) -> None:
    errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
