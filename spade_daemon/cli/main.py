"""``spade``: the command line. Every error a person can act on is one line and a non-zero exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from spade_daemon.cli import corpus, doctor, env, episode, events, logs, memory, schemas, serve, status, up
from spade_daemon.cli.common import Chosen, Config, Profile, Set, errors
from spade_daemon.errors import ConfigError, SpadeError, UserInputError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Self-play in adaptive synthetic executable environments, as an event-sourced daemon.",
)


@app.callback()
def options(context: typer.Context, profile: Profile = None, config: Config = None, set_: Set = None) -> None:
    """Options before the command choose the settings."""
    context.obj = Chosen(profile, config and Path(config), tuple(set_ or ()))


app.command()(up.up)
app.command()(up.down)
app.command()(status.status)
app.command()(status.replay)
app.command()(doctor.doctor)
app.command()(schemas.schemas)
app.add_typer(events.app, name="events")
app.add_typer(env.app, name="env")
app.add_typer(episode.app, name="episode")
app.add_typer(memory.app, name="memory")
app.add_typer(corpus.app, name="corpus")
app.add_typer(logs.app, name="logs")
app.add_typer(serve.app, name="serve")


def main() -> None:
    """Entry point: 2 for wrong input, 1 for everything else that failed, 130 after Ctrl-C."""
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
