"""What setup and lock print: one line a step, with the time since the start."""

from __future__ import annotations

import sys
import time
from typing import NoReturn

_BEGUN = time.monotonic()


def say(text: str) -> None:
    """Print one progress line on standard error: standard output stays free for programs."""
    print(f"[setup {time.monotonic() - _BEGUN:6.1f} s] {text}", file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    """Print one line that says what is wrong and what to do, and exit with status 1."""
    print(f"setup: {text}", file=sys.stderr, flush=True)
    raise SystemExit(1)
