"""System-call numbers and the audit constant of each machine the sandbox runs on.

The numbers are part of the kernel's stable interface. A machine without a table here is refused: a filter with wrong
numbers would be worse than none.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """One system-call interface."""

    name: str
    audit_arch: int
    """``AUDIT_ARCH_*`` value that the kernel puts beside each call's number."""
    numbers: dict[str, int]
    foreign_from: int | None = None
    """Numbers from here on belong to another calling convention of the same architecture (x32)."""


X86_64 = Machine(
    "x86_64",
    0xC000003E,
    {
        "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11,
        "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16, "pread64": 17,
        "readv": 19, "writev": 20, "access": 21, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28,
        "nanosleep": 35, "getpid": 39, "exit": 60, "fcntl": 72, "getcwd": 79, "readlink": 89, "gettimeofday": 96,
        "getrusage": 98, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110,
        "capset": 126, "sigaltstack": 131, "pivot_root": 155, "gettid": 186, "futex": 202, "sched_getaffinity": 204,
        "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231,
        "tgkill": 234, "openat": 257, "newfstatat": 262, "readlinkat": 267, "faccessat": 269, "pselect6": 270,
        "ppoll": 271, "prlimit64": 302, "getrandom": 318, "statx": 332, "rseq": 334, "clone3": 435, "openat2": 437,
        "faccessat2": 439, "open": 2, "stat": 4, "lstat": 6,
        "unshare": 272,
    },
    foreign_from=0x40000000,
)  # fmt: skip

AARCH64 = Machine(
    "aarch64",
    0xC00000B7,
    {
        "getcwd": 17, "fcntl": 25, "ioctl": 29, "pivot_root": 41, "faccessat": 48, "openat": 56, "close": 57,
        "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pselect6": 72, "ppoll": 73,
        "readlinkat": 78, "newfstatat": 79, "fstat": 80, "capset": 91, "exit": 93, "exit_group": 94, "unshare": 97,
        "futex": 98, "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
        "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "tgkill": 131, "sigaltstack": 132,
        "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "getrusage": 165,
        "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176,
        "getegid": 177, "gettid": 178, "brk": 214, "munmap": 215, "mremap": 216,
        "mmap": 222, "mprotect": 226, "madvise": 233, "prlimit64": 261, "getrandom": 278,
        "statx": 291, "rseq": 293, "clone3": 435, "openat2": 437, "faccessat2": 439,
    },
)  # fmt: skip

LANDLOCK_CREATE_RULESET = 444
LANDLOCK_RESTRICT_SELF = 446
"""Calls from 424 on have one number on every machine."""

MACHINES = {machine.name: machine for machine in (X86_64, AARCH64)}


def this_machine() -> Machine:
    """The table for the running kernel.

    Raises:
        NotImplementedError: no table is known; the sandbox must not start.
    """
    name = platform.machine()
    if name not in MACHINES:
        raise NotImplementedError(f"no system-call table for {name}: run the sandbox on {' or '.join(MACHINES)}")
    return MACHINES[name]
