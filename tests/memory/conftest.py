"""Entries for the memory's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spade_daemon.memory.entry import MemoryEntry

DIMENSIONS = 4
MakeEntry = Callable[..., MemoryEntry]


def entry(number: int = 0, **changes: Any) -> MemoryEntry:
    angle = number / 10
    values: dict[str, Any] = {
        "id": f"e-{number:012x}",
        "name": f"Game {number}",
        "setting": "games",
        "skill": "Optimization",
        "origin": "designed",
        "description": "A game.",
        "code": f"class Game{number}Env: ...\n",
        "hint": "Think.",
        "win_rate": 0.5,
        "regret": 0.1,
        "regret_se": 0.05,
        "plays": 8,
        "rounds": 1,
        "born": number + 1,
        "last_played": number + 2,
        "vector": np.array([np.cos(angle), np.sin(angle), 0, 0], dtype=np.float32),
    }
    return MemoryEntry(**(values | changes))


@pytest.fixture
def make_entry() -> MakeEntry:
    return entry
