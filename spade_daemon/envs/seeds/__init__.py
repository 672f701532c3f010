"""Hand-written environments: the designer's first examples, the agent's first opponents.

The files under ``code/`` are data, not modules: they are read as text and run in the sandbox, as generated code is.
They carry no type annotations because a small model imitates them.
"""

from __future__ import annotations

import ast
import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from schemas.words import Setting

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Seed:
    """One hand-written environment."""

    environment: str
    """``e-`` and the first 12 hex digits of the SHA-256 of ``code``."""
    name: str
    setting: Setting
    skill: str
    description: str
    """First line of the class docstring."""
    code: str
    hint: str


@cache
def load_seeds(setting: Setting | None = None) -> tuple[Seed, ...]:
    """The seeds of ``setting``, or all, at least one per skill, in the order of the catalogue."""
    catalogue = tomllib.loads((_FOLDER / "seeds.toml").read_text(encoding="utf-8"))
    return tuple(_load(entry) for entry in catalogue["seed"] if setting in (None, entry["setting"]))


def environment_id(code: str) -> str:
    """Name of an environment by its content."""
    return f"e-{hashlib.sha256(code.encode()).hexdigest()[:12]}"


def _load(entry: dict[str, str]) -> Seed:
    code = (_FOLDER / "code" / entry["file"]).read_text(encoding="utf-8")
    return Seed(
        environment=environment_id(code),
        name=entry["name"],
        setting=Setting(entry["setting"]),
        skill=entry["skill"],
        description=_first_docstring_line(code),
        code=code,
        hint=entry["hint"].strip(),
    )


def _first_docstring_line(code: str) -> str:
    """Only for our own files: generated code is never parsed outside the sandbox."""
    classes = (node for node in ast.parse(code).body if isinstance(node, ast.ClassDef) and node.name.endswith("Env"))
    return (ast.get_docstring(next(classes)) or "").partition("\n")[0]
