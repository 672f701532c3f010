"""The system-call allow-list as a classic BPF program. Pure: text in, bytes out.

A worker needs to compute, to answer on one socket and to end. Everything else is refused, ``open`` included: all
modules are loaded before the filter goes up.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

from .syscalls import Machine

LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
NUMBER_OFFSET, ARCH_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
"""Offsets in the kernel's ``struct seccomp_data``."""

PROT_EXEC = 4
F_GETFD, F_SETFD, F_GETFL = 1, 2, 3

FREE = """
read write readv writev close fstat lseek pread64 brk munmap mremap madvise futex rt_sigaction rt_sigprocmask
rt_sigreturn sigaltstack clock_gettime clock_getres gettimeofday nanosleep clock_nanosleep poll ppoll select
pselect6 restart_syscall getpid getppid gettid getuid geteuid getgid getegid getcwd getrusage times
sched_getaffinity sched_yield getrandom exit exit_group
""".split()  # noqa: SIM905 (a list of words reads better as words)
"""Calls allowed with any argument; those a machine lacks are left out."""

PATH_CALLS = ("open", "openat", "stat", "lstat", "newfstatat", "statx", "readlink", "readlinkat")
ACCESS_CALLS = ("access", "faccessat", "faccessat2")
REFUSED = {
    errno.EACCES: PATH_CALLS + ACCESS_CALLS,
    errno.ENOSYS: ("clone3", "openat2", "rseq"),
    errno.ENOTTY: ("ioctl",),
}
"""Calls whose refusal has a particular error, so that libraries take their ordinary fallback."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One ``struct sock_filter``."""

    code: int
    operand: int
    if_true: int = 0
    if_false: int = 0

    def packed(self) -> bytes:
        """Eight bytes in the machine's order."""
        return struct.pack("=HBBI", self.code, self.if_true, self.if_false, self.operand)


Program = tuple[Instruction, ...]


def fail_with(number: int) -> int:
    """Return value that refuses a call with this ``errno``."""
    return 0x00050000 | number


def allow_list(machine: Machine, pid: int) -> Program:
    """The filter of one worker.

    Args:
        machine: whose call numbers.
        pid: the worker itself, the only process it may signal (``abort`` and ``raise`` need that).
    """
    numbers = machine.numbers
    program = _guard(machine)
    for name in FREE:
        if name in numbers:
            program += _answer(numbers[name], ALLOW)
    for name in ("mmap", "mprotect"):
        program += _conditional(numbers[name], _without_bits(2, PROT_EXEC))
    program += _conditional(numbers["fcntl"], _one_of(1, (F_GETFD, F_SETFD, F_GETFL)))
    program += _conditional(numbers["tgkill"], _one_of(0, (pid,)))
    program += _conditional(numbers["prlimit64"], _all_zero((0, 2)))
    for number, names in REFUSED.items():
        for name in names:
            if name in numbers:
                program += _answer(numbers[name], fail_with(number))
    return (*program, Instruction(RETURN, fail_with(errno.EPERM)))


def assemble(program: Program) -> bytes:
    """The program as the kernel takes it."""
    return b"".join(instruction.packed() for instruction in program)


def _guard(machine: Machine) -> Program:
    """Kill on a call of another architecture or convention, then load the call's number."""
    kill = Instruction(RETURN, KILL_PROCESS)
    program: Program = (
        Instruction(LOAD_WORD, ARCH_OFFSET),
        Instruction(JUMP_EQUAL, machine.audit_arch, 1, 0),
        kill,
        Instruction(LOAD_WORD, NUMBER_OFFSET),
    )
    if machine.foreign_from is not None:
        program += (Instruction(JUMP_GREATER_EQUAL, machine.foreign_from, 0, 1), kill)
    return program


def _answer(number: int, value: int) -> Program:
    return Instruction(JUMP_EQUAL, number, 0, 1), Instruction(RETURN, value)


def _conditional(number: int, body: Program) -> Program:
    """``body`` ends in a return on every path, so it may overwrite the loaded number."""
    return Instruction(JUMP_EQUAL, number, 0, len(body)), *body


def _without_bits(argument: int, bits: int) -> Program:
    return (
        Instruction(LOAD_WORD, _low(argument)),
        Instruction(JUMP_ANY_BIT, bits, 0, 1),
        Instruction(RETURN, fail_with(errno.EPERM)),
        Instruction(RETURN, ALLOW),
    )


def _one_of(argument: int, values: tuple[int, ...]) -> Program:
    """Compare 32 bits: the kernel itself reads these arguments as 32-bit integers."""
    program: Program = (Instruction(LOAD_WORD, _low(argument)),)
    for value in values:
        program += _answer(value, ALLOW)
    return (*program, Instruction(RETURN, fail_with(errno.EPERM)))


def _all_zero(arguments: tuple[int, ...]) -> Program:
    program: Program = ()
    for argument in arguments:
        for offset in (_low(argument), _low(argument) + 4):
            program += (
                Instruction(LOAD_WORD, offset),
                Instruction(JUMP_EQUAL, 0, 1, 0),
                Instruction(RETURN, fail_with(errno.EPERM)),
            )
    return (*program, Instruction(RETURN, ALLOW))


def _low(argument: int) -> int:
    """Offset of the lower half of a 64-bit argument on a little-endian machine."""
    return ARGUMENTS_OFFSET + 8 * argument
