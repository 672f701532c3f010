"""Upcasters: how an event of an older schema version reads today. One function a step, never removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: dict[tuple[str, int], Upcaster] = {}
"""(event type, version it reads) -> the same data one version later."""


def upcast(type_: str, version: int, target: int, data: dict[str, Any]) -> dict[str, Any]:
    """Bring ``data`` of ``type_`` from ``version`` to ``target``, one step at a time.

    Raises:
        KeyError: a step is missing, which is a defect of this program.
    """
    for step in range(version, target):
        data = UPCASTERS[type_, step](data)
    return data
