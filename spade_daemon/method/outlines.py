"""The outline prompt: for models too small to invent mechanics, but able to write what an outline says.

A skill's bank of outlines gives the mechanics, the document the subject, and the model the class. Two worked examples
stand before it as earlier turns: a small model continues a conversation better than it follows instructions.
"""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from schemas.words import Setting

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Worked:
    """One finished example."""

    subject: str
    outline: str
    code: str


def draw_outline(setting: Setting, skill: str, rng: random.Random) -> str | None:
    """An outline for ``skill``; ``None`` where the bank has none, and the designer must find its own mechanics."""
    bank = outlines().get(skill, ()) if setting is Setting.GAMES else ()
    return rng.choice(bank) if bank else None


@cache
def outlines() -> dict[str, tuple[str, ...]]:
    """The bank: skill to outlines."""
    raw = tomllib.loads((_TEMPLATES / "outlines_games.toml").read_text(encoding="utf-8"))
    return {skill: tuple(text.strip() for text in texts) for skill, texts in raw.items()}


@cache
def worked_examples() -> tuple[Worked, ...]:
    """The worked examples, in order."""
    raw = tomllib.loads((_TEMPLATES / "outlines_worked.toml").read_text(encoding="utf-8"))
    return tuple(Worked(item["subject"], item["outline"].strip(), item["code"].strip()) for item in raw["example"])


def request(subject: str, outline: str) -> str:
    """The turn that asks for one class."""
    return f"Subject: {subject}\n\nOutline:\n{outline}"
