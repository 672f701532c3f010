"""``spade doctor``: check every part and say what to do."""

from __future__ import annotations

from dataclasses import asdict

import typer

from spade_daemon.cli.common import Json, chosen_settings, console, print_json
from spade_daemon.doctor import examine
from spade_daemon.log.locks import UP_LOCK, holder


def doctor(context: typer.Context, json: Json = False) -> None:
    """Check every part; exit code 1 when something is wrong."""
    settings = chosen_settings(context)
    findings = examine(settings, running=holder(settings.home / UP_LOCK) is not None)
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            mark, style = ("ok", "green") if finding.ok else ("no", "red")
            remedy = f"; {finding.remedy}" if finding.remedy and not finding.ok else ""
            console.print(
                f"{mark}  {finding.part:<12} {finding.detail}{remedy}", style=style, markup=False, soft_wrap=True
            )
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
