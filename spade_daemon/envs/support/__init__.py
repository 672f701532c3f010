"""Trusted modules that travel as source text into every sandbox worker."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def support_sources() -> dict[str, str]:
    """Module name to source text, for ``Sandbox(support=...)``."""
    return {
        path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.py")) if path.stem != "__init__"
    }
