"""``spade env``: the environments of a run, and the gate by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.syntax import Syntax
from rich.table import Table

from schemas.words import Setting
from spade_daemon.cli.common import Json, chosen_settings, console, folded, opened_log, print_json, run
from spade_daemon.cli.describe import number
from spade_daemon.envs.contract import action_of
from spade_daemon.envs.support import support_sources
from spade_daemon.errors import EpisodeFault, UserInputError
from spade_daemon.log.state import Environment, State
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.vetting.gate import Verdict, vet

app = typer.Typer(no_args_is_help=True, help="Look at environments, vet and play them.")

MAX_FILE = 1 << 20


@app.command("list")
def list_(
    context: typer.Context,
    accepted: Annotated[bool, typer.Option("--accepted", help="Only those the gate let in.")] = False,
    skill: Annotated[str | None, typer.Option("--skill")] = None,
    json: Json = False,
) -> None:
    """One line for each environment of the run, oldest first."""
    settings = chosen_settings(context)

    async def work() -> State:
        async with opened_log(settings) as log:
            return await folded(log)

    found = [
        environment
        for environment in sorted(run(work()).environments.values(), key=lambda item: item.born)
        if (not accepted or environment.accepted) and (skill is None or environment.skill == skill)
    ]
    if json:
        print_json([summary(environment) for environment in found])
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("environment", "origin", "skill", "verdict", "plays", "win rate", "regret", "description"):
        table.add_column(column, no_wrap=True)
    for environment in found:
        table.add_row(
            environment.id,
            environment.origin,
            environment.skill,
            verdict_word(environment),
            str(environment.plays),
            number(environment.win_rate),
            number(environment.regret),
            environment.description.splitlines()[0][:60] if environment.description else "",
        )
    console.print(table, markup=False)


def verdict_word(environment: Environment) -> str:
    """``accepted``, ``waiting``, or the reason of the rejection."""
    if environment.accepted is None:
        return "waiting"
    return "accepted" if environment.accepted else str(environment.reason)


def summary(environment: Environment) -> dict[str, Any]:
    """An environment's figures, JSON-ready."""
    return {
        "environment": environment.id,
        "origin": environment.origin.value,
        "setting": environment.setting.value,
        "skill": environment.skill,
        "verdict": verdict_word(environment),
        "document": environment.document,
        "description": environment.description,
        "hint": environment.hint,
        "plays": environment.plays,
        "win_rate": environment.win_rate,
        "regret": environment.regret,
        "regret_se": environment.regret_se,
        "rounds": len(environment.rounds),
        "references": list(environment.references),
        "born": environment.born,
    }


@app.command()
def show(context: typer.Context, environment: str, json: Json = False) -> None:
    """Code, hint, verdict and figures of one environment."""
    settings = chosen_settings(context)

    async def work() -> tuple[Environment, str | None]:
        async with opened_log(settings) as log:
            found = (await folded(log)).environments.get(environment)
            if found is None:
                raise UserInputError(f"the run has no environment {environment!r}: see `spade env list`")
            return found, (await log.blobs.get(found.code)).decode() if found.code else None

    found, code = run(work())
    if json:
        print_json(summary(found) | {"code": code})
        return
    console.print(f"{found.id}  {found.origin}  {found.setting}, {found.skill}", style="bold", markup=False)
    console.print(
        f"{verdict_word(found)}  plays {found.plays}  win rate {number(found.win_rate)}  regret {number(found.regret)}"
        f" ± {number(found.regret_se)}  document {found.document or '-'}",
        markup=False,
    )
    if found.references:
        console.print(f"written after {', '.join(found.references)}", style="dim", markup=False)
    if found.hint:
        console.print(f"hint: {found.hint}", style="yellow", markup=False)
    if code:
        console.print(Syntax(code, "python", line_numbers=True, word_wrap=True))


@app.command("vet")
def vet_(
    context: typer.Context,
    file: Path,
    setting: Annotated[Setting, typer.Option("--setting")] = Setting.GAMES,
    json: Json = False,
) -> None:
    """Put a file through the gate; exit code 1 when it is rejected."""
    settings = chosen_settings(context)
    source = read_source(file)

    async def work() -> Verdict:
        async with Sandbox(settings.sandbox, support=support_sources()) as sandbox:
            seeds = tuple(range(1, settings.vet.seeds + 1))
            return await vet(source, setting=setting, sandbox=sandbox, settings=settings.vet, seeds=seeds, known={})

    verdict = run(work())
    if json:
        checks = [check.model_dump(mode="json") for check in verdict.checks]
        print_json({"accepted": verdict.accepted, "reason": verdict.reason, "checks": checks})
    else:
        for check in verdict.checks:
            mark, style = ("ok", "green") if check.passed else ("no", "red")
            numbers = "  ".join(f"{name} {value:g}" for name, value in check.numbers.items())
            said = f"{mark}  {check.name:<16} {check.seconds * 1e3:7.1f} ms  {check.detail or numbers}"
            console.print(said, style=style, markup=False, soft_wrap=True)
        console.print("accepted" if verdict.accepted else f"rejected by {verdict.reason}", style="bold")
    if not verdict.accepted:
        raise typer.Exit(1)


@app.command()
def play(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="A file, or the id of an environment of the run.")],
    seed: Annotated[int, typer.Option("--seed")] = 0,
    setting: Annotated[Setting, typer.Option("--setting")] = Setting.GAMES,
) -> None:
    """Play an environment by hand, in the sandbox: type an action a line, end with Ctrl-D."""
    settings = chosen_settings(context)
    source = read_source(Path(target)) if Path(target).is_file() else None

    async def work() -> None:
        code, kind = source, setting
        if code is None:
            async with opened_log(settings) as log:
                found = (await folded(log)).environments.get(target)
                if found is None or found.code is None:
                    raise UserInputError(f"{target!r} is neither a file nor an environment of the run")
                code, kind = (await log.blobs.get(found.code)).decode(), found.setting
        async with Sandbox(settings.sandbox, support=support_sources()) as sandbox:
            await _play(sandbox, code, kind, seed)

    run(work())


async def _play(sandbox: Sandbox, code: str, setting: Setting, seed: int) -> None:
    try:
        async with sandbox.open(code) as worker:
            console.print((await worker.reset(seed)).observation, markup=False)
            while True:
                try:
                    typed = await asyncio.to_thread(input, "> ")
                except EOFError:
                    return
                boxed = typed if setting is Setting.TOOL_USE or "\\boxed" in typed else f"\\boxed{{{typed}}}"
                step = await worker.step(action_of(boxed, setting))
                console.print(step.observation, markup=False)
                console.print(f"reward {step.reward:g}", style="dim")
                if step.terminated or step.truncated:
                    console.print("terminated" if step.terminated else "truncated", style="bold")
                    return
    except EpisodeFault as fault:
        raise UserInputError(f"the environment failed ({fault.stop}): {fault}") from fault


def read_source(path: Path) -> str:
    """A user's environment file as text.

    Raises:
        UserInputError: not readable, too large or not UTF-8.
    """
    try:
        if path.stat().st_size > MAX_FILE:
            raise UserInputError(f"{path} has more than {MAX_FILE} bytes: no environment is that long")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserInputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserInputError(f"{path} is not UTF-8 text (byte {error.start})") from error
