"""Memory between two steps: a trainer waits most of the time and should not sit on what it does not use."""

from __future__ import annotations

import ctypes
import gc

import torch


def release() -> None:
    """Give unused memory back to the device and to the system."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim()


def trim() -> None:
    """Let the C library return freed pages: what one micro-batch left in pieces, the next one's peak stands upon."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # Not glibc: its allocator decides for itself.
        return
    malloc_trim(0)
