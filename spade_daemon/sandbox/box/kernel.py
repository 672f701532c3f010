"""The few kernel interfaces that Python's standard library does not offer, by ctypes."""

from __future__ import annotations

import ctypes
import os
import struct

from .bpf import Program, assemble

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 38, 47
SECCOMP_MODE_FILTER, PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7
CAPABILITY_VERSION_3 = 0x20080522
HIGHEST_CAPABILITY = 63


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """A raw call with machine-word arguments.

    Raises:
        OSError: the kernel refused.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        _raise(f"system call {number}")
    return result


def prctl(option: int, *arguments: int) -> None:
    """``prctl`` with up to four arguments."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    if _libc.prctl(ctypes.c_int(option), *words) != 0:
        _raise(f"prctl {option}")


def install_filter(program: Program) -> None:
    """Put a system-call filter on this process for good. Needs ``no_new_privs`` without privileges."""
    code = assemble(program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(buffer)))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(header))


def keep_capabilities(kept: tuple[int, ...], capset_number: int) -> None:
    """Give up every capability but ``kept``, in the bounding set too, so that a child has nothing to drop."""
    for capability in range(HIGHEST_CAPABILITY + 1):
        if capability in kept:
            continue
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except PermissionError:
            # Without CAP_SETPCAP the bounding set stays; it grants nothing once no_new_privs is set.
            break
        except OSError:
            break  # past the last capability of this kernel
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    syscall(capset_number, header, struct.pack("=IIIIII", mask, mask, 0, 0, 0, 0))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """``mount``."""
    encoded = [text.encode() if text is not None else None for text in (source, target, kind, options)]
    if _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]) != 0:
        _raise(f"mount {target}")


def unmount(target: str, flags: int) -> None:
    """``umount2``."""
    if _libc.umount2(target.encode(), ctypes.c_int(flags)) != 0:
        _raise(f"unmount {target}")


def _raise(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
