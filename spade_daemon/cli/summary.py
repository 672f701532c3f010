"""The state of a run as figures and as a panel: what ``spade status`` and the live view of ``spade up`` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from schemas.words import Origin
from spade_daemon.cli.describe import number
from spade_daemon.log.state import State


@dataclass(frozen=True, slots=True)
class ProcessLine:
    """One supervised process, for people."""

    name: str
    state: str
    pid: int | None
    uptime: float | None


def figures(state: State) -> dict[str, Any]:
    """Everything worth knowing at a glance, JSON-ready."""
    designed = [e for e in state.environments.values() if e.origin is Origin.DESIGNED]
    settled = [e for e in designed if e.accepted is not None]
    return {
        "run": state.run or None,
        "sequence": state.sequence,
        "epoch": state.epoch,
        "running": state.running,
        "model": state.model,
        "policy": state.version,
        "serving": dict(state.serving),
        "swaps": state.swaps,
        "slots": [
            {"slot": s.turn.slot, "generation": s.turn.generation, "phase": s.phase.value, "environment": s.environment}
            for _, s in sorted(state.slots.items())
        ],
        "counts": dict(sorted(state.counts.items())),
        "designs": len(designed),
        "accepted": sum(e.accepted is True for e in settled),
        "rejections": dict(sorted(state.rejections.items(), key=lambda item: -item[1])),
        "skills": {name: _skill(stats) for name, stats in sorted(state.skills.items())},
        "faults": dict(state.faults),
        "trained_groups": state.trained_groups,
        "trained_designs": state.trained_designs,
        "pending_outcomes": len(state.outcomes),
        "stale": state.stale,
        "unexpected": state.unexpected,
        "last_incident": _incident(state),
        "metrics": dict(state.checkpoint.metrics) if state.checkpoint else {},
    }


def _skill(stats: Any) -> dict[str, Any]:
    return {
        "designed": stats.designed,
        "accepted": stats.accepted,
        "rounds": stats.rounds,
        "regret": stats.regret_sum / stats.rounds if stats.rounds else None,
        "win_rate": stats.win_sum / stats.rounds if stats.rounds else None,
    }


def _incident(state: State) -> dict[str, Any] | None:
    if not state.incidents:
        return None
    last = state.incidents[-1]
    return {"sequence": last.sequence, "source": last.source, "message": last.message, "remedy": last.remedy}


def panel(state: State, processes: list[ProcessLine], note: str = "") -> RenderableType:
    """The same, drawn for a terminal."""
    facts = figures(state)
    head = Text.assemble(
        ("spade ", "bold"),
        f"epoch {facts['epoch']}  policy version {facts['policy']}  swaps {facts['swaps']}  events {facts['sequence']}",
        f"  designs {facts['accepted']}/{facts['designs']} accepted",
        f"  trained {facts['trained_groups']} groups, {facts['trained_designs']} designs",
    )
    parts: list[RenderableType] = [head]
    if processes:
        parts.append(_processes(processes))
    if facts["slots"]:
        parts.append(_slots(facts))
    if facts["skills"]:
        parts.append(_skills(facts))
    if facts["rejections"]:
        parts.append(Text("rejections  " + "  ".join(f"{name} {count}" for name, count in facts["rejections"].items())))
    if facts["last_incident"]:
        parts.append(Text(f"last error  {facts['last_incident']['message']}"[:300], style="red"))
    if note:
        parts.append(Text(note, style="dim"))
    return Group(*parts)


def _processes(processes: list[ProcessLine]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("process", "state", "pid", "up"):
        table.add_column(column, no_wrap=True)
    for process in processes:
        style = "green" if process.state == "RUNNING" else "yellow"
        up = f"{process.uptime:.0f} s" if process.uptime is not None else "-"
        table.add_row(process.name, Text(process.state.lower(), style=style), str(process.pid or "-"), up)
    return table


def _slots(facts: dict[str, Any]) -> Text:
    words = [f"{s['slot']}:{s['phase']}{' ' + s['environment'] if s['environment'] else ''}" for s in facts["slots"]]
    return Text("slots  " + "  ".join(words))


def _skills(facts: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("skill", "designed", "accepted", "rounds", "regret", "win rate"):
        table.add_column(column, justify="left" if column == "skill" else "right")
    for name, skill in facts["skills"].items():
        table.add_row(
            Text(name),
            str(skill["designed"]),
            str(skill["accepted"]),
            str(skill["rounds"]),
            number(skill["regret"]),
            number(skill["win_rate"]),
        )
    return table
