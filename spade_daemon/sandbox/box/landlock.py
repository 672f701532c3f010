"""Landlock: this process and its children may touch no path, no TCP port, and nobody outside by signal or socket."""

from __future__ import annotations

import os
import struct

from . import kernel
from .syscalls import LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF

ABI_TRUNCATE, ABI_TCP, ABI_IOCTL, ABI_SCOPE = 3, 4, 5, 6
VERSION_QUERY = 1
FILE_RIGHTS_ABI1 = (1 << 13) - 1
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
TCP_BIND_AND_CONNECT = 3
SCOPE_SOCKETS_AND_SIGNALS = 3


def version() -> int:
    """The kernel's Landlock interface version; 0 without Landlock."""
    try:
        return kernel.syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION_QUERY)
    except OSError:
        return 0


def ruleset(abi: int) -> bytes:
    """``struct landlock_ruleset_attr`` that handles, and with no rule forbids, all that ``abi`` knows."""
    rights = FILE_RIGHTS_ABI1
    for since, right in ((2, REFER), (ABI_TRUNCATE, TRUNCATE), (ABI_IOCTL, IOCTL_DEVICE)):
        if abi >= since:
            rights |= right
    words = [rights]
    if abi >= ABI_TCP:
        words.append(TCP_BIND_AND_CONNECT)
    if abi >= ABI_SCOPE:
        words.append(SCOPE_SOCKETS_AND_SIGNALS)
    return struct.pack(f"={len(words)}Q", *words)


def restrict(abi: int) -> None:
    """Enforce an empty ruleset. Needs ``no_new_privs``; cannot be undone."""
    attributes = ruleset(abi)
    descriptor = kernel.syscall(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        kernel.syscall(LANDLOCK_RESTRICT_SELF, descriptor, 0)
    finally:
        os.close(descriptor)
