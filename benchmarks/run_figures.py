"""Figures of a run, from its log and its processes: rates, acceptance, swaps, and the memory of each process.

    SPADE_HOME=... python benchmarks/run_figures.py [spade options, e.g. --profile cpu]

Times come from the events themselves. Memory is the proportional set size (PSS) of each supervised process with its
children, read now, so it is only there while the run is up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
from datetime import datetime
from pathlib import Path

from schemas.events import (
    CheckpointPublished,
    EnvironmentProposed,
    EnvironmentValidated,
    EpisodeCompleted,
    RunStarted,
    WeightsSwapped,
)
from spade_daemon import settings as settings_module
from spade_daemon.cli.common import opened_log
from spade_daemon.errors import MissingPartError
from spade_daemon.log.stored import Stored
from spade_daemon.processes import client
from spade_daemon.settings import Settings


async def events(settings: Settings) -> list[Stored]:
    """The whole log."""
    async with opened_log(settings) as log:
        return [stored async for stored in log.read()]


def figures(log: list[Stored]) -> dict[str, object]:
    """Rates over the time between the first weights served and the last event."""
    swaps = [stored for stored in log if isinstance(stored.event.data, WeightsSwapped)]
    started = next(stored.event.time for stored in log if isinstance(stored.event.data, RunStarted))
    trained = [stored for stored in swaps if stored.event.data.policy > 0]  # type: ignore[attr-defined]
    begin: datetime = swaps[0].event.time if swaps else started
    minutes = (log[-1].event.time - begin).total_seconds() / 60
    designs = [s.event.data for s in log if isinstance(s.event.data, EnvironmentProposed)]
    accepted = [s.event.data for s in log if isinstance(s.event.data, EnvironmentValidated) and s.event.data.accepted]
    episodes = [s.event.data for s in log if isinstance(s.event.data, EpisodeCompleted)]
    checkpoints = [s.event.data for s in log if isinstance(s.event.data, CheckpointPublished)]
    tokens = sum(e.sample.sampled_tokens for e in episodes if e.sample) + sum(d.sample.sampled_tokens for d in designs)
    return {
        "minutes": round(minutes, 1),
        "minutes from run.started to the first trained weights served": _minutes(started, trained),
        "designs per minute": round(len(designs) / minutes, 2),
        "share of designs accepted": round(len(accepted) / len(designs), 3) if designs else None,
        "episodes per minute": round(len(episodes) / minutes, 2),
        "sampled tokens per second": round(tokens / minutes / 60, 1),
        "checkpoints": len(checkpoints),
        "seconds per batch": [round(c.seconds) for c in checkpoints],
        "swap seconds": [round(s.event.data.seconds, 1) for s in trained],  # type: ignore[attr-defined]
        "paused seconds": [round(s.event.data.paused_seconds, 1) for s in trained],  # type: ignore[attr-defined]
        "trained groups": sum(len(c.groups) for c in checkpoints),
        "trained designs": sum(len(c.designs) for c in checkpoints),
    }


def _minutes(started: datetime, trained: list[Stored]) -> float | None:
    return round((trained[0].event.time - started).total_seconds() / 60, 1) if trained else None


def memory(settings: Settings) -> dict[str, str]:
    """PSS of each supervised process with all its descendants."""
    try:
        processes = client(settings).processes()
    except MissingPartError:
        return {}
    return {p.name: f"{sum(map(_pss, _family(p.pid))) / 2**20:.2f} GiB" for p in processes if p.pid}


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = [pid]
    with contextlib.suppress(OSError):
        found += [each for child in children.read_text().split() for each in _family(int(child))]
    return found


def _pss(pid: int) -> int:
    """In KiB; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    settings = settings_module.load(options.profile, overrides=tuple(options.set))
    machine = {"machine": platform.platform(), "cores": len(os.sched_getaffinity(0))}
    print(json.dumps(machine | figures(asyncio.run(events(settings))) | {"memory": memory(settings)}, indent=2))


if __name__ == "__main__":
    main()
