"""``spade episode``: look at one episode, turn by turn."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.events import EpisodeCompleted
from schemas.records import EpisodeRecord
from schemas.words import Arm
from spade_daemon.cli.common import Json, chosen_settings, console, opened_log, print_json, run
from spade_daemon.cli.describe import number
from spade_daemon.errors import UserInputError
from spade_daemon.log import subjects

app = typer.Typer(no_args_is_help=True, help="Look at episodes.")


@app.command()
def show(
    context: typer.Context,
    environment: str,
    round_: Annotated[int, typer.Option("--round")] = 0,
    arm: Annotated[Arm, typer.Option("--arm")] = Arm.PLAIN,
    play: Annotated[int, typer.Option("--play")] = 0,
    json: Json = False,
) -> None:
    """Print what the agent saw and wrote, and what it earned."""
    settings = chosen_settings(context)
    key = f"{environment}.{round_}.{arm}.{play}"

    async def work() -> tuple[EpisodeCompleted, EpisodeRecord | None] | None:
        async with opened_log(settings) as log:
            stored = await log.last(EpisodeCompleted, key) if subjects.TOKENS.fullmatch(key) else None
            if stored is None:
                return None
            data = EpisodeCompleted.model_validate(stored.event.data.model_dump())
            record = await log.blobs.get_record(EpisodeRecord, data.sample.blob) if data.sample else None
            return data, record

    found = run(work())
    if found is None:
        raise UserInputError(f"no episode {key}: see `spade events tail --type episode.completed`")
    data, record = found
    if json:
        print_json(
            {"event": data.model_dump(mode="json"), "record": record.model_dump(mode="json") if record else None}
        )
        return
    console.print(
        f"{key}  seed {data.seed}  return {number(data.return_)}  {data.turns} turns  {data.stop}"
        f"{f'  fault {data.fault}' if data.fault else ''}  {data.seconds:.1f} s  walls {' '.join(data.walls)}",
        style="bold",
        markup=False,
    )
    if record is not None:
        _print_turns(record)


def _print_turns(record: EpisodeRecord) -> None:
    if record.hint:
        console.print(f"hint: {record.hint}", style="yellow", markup=False)
    for index, turn in enumerate(record.turns, 1):
        console.print(f"turn {index}", style="dim")
        console.print(turn.observation, markup=False)
        console.print(turn.response, style="cyan", markup=False)
        console.print(f"action {turn.action!r}  reward {number(turn.reward)}", style="dim", markup=False)
    console.print(record.final_observation, markup=False)
    if record.error:
        console.print(record.error, style="red", markup=False)
    trained = sum(sum(sample.trained) for sample in record.samples)
    total = sum(len(sample.ids) for sample in record.samples)
    console.print(f"{total} tokens, {trained} of them sampled (these train)", style="dim")
