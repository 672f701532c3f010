"""The allow-list, run by a small interpreter of classic BPF over the whole table of calls."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.sandbox.box import bpf, probes, syscalls
from spade_daemon.sandbox.box.syscalls import AARCH64, X86_64, Machine

PID = 4242
MACHINES = (X86_64, AARCH64)
WORD = (1 << 64) - 1


def decide(machine: Machine, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the kernel would answer to a call."""
    words = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    arch = machine.audit_arch if arch is None else arch
    return interpret(bpf.allow_list(machine, PID), struct.pack("=iIQ6Q", number, arch, 0, *words))


def interpret(program: bpf.Program, data: bytes) -> int:
    """Run a filter on a ``struct seccomp_data``; every step is forward, so it ends."""
    accumulator, at = 0, 0
    while True:
        instruction = program[at]
        if instruction.code == bpf.RETURN:
            return instruction.operand
        if instruction.code == bpf.LOAD_WORD:
            (accumulator,) = struct.unpack_from("=I", data, instruction.operand)
            at += 1
            continue
        true = {
            bpf.JUMP_EQUAL: accumulator == instruction.operand,
            bpf.JUMP_GREATER_EQUAL: accumulator >= instruction.operand,
            bpf.JUMP_ANY_BIT: bool(accumulator & instruction.operand),
        }[instruction.code]
        at += 1 + (instruction.if_true if true else instruction.if_false)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_of_all_numbers_only_the_listed_are_allowed(machine: Machine) -> None:
    conditional = {"mmap", "mprotect", "prlimit64"}
    """Harmless with all arguments zero; ``fcntl`` and ``tgkill`` are not."""
    allowed = {number for number in range(1024) if decide(machine, number) == bpf.ALLOW}
    listed = {machine.numbers[name] for name in {*bpf.FREE, *conditional} if name in machine.numbers}
    assert allowed == listed
    assert len(allowed) < 50


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_another_architecture_kills(machine: Machine) -> None:
    for number in range(1024):
        assert decide(machine, number, arch=0x40000003) == bpf.KILL_PROCESS


def test_x32_kills() -> None:
    for number in range(1024):
        assert decide(X86_64, 0x40000000 | number) == bpf.KILL_PROCESS


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@given(protection=st.integers(0, WORD), rest=st.integers(0, WORD))
def test_no_executable_memory(machine: Machine, protection: int, rest: int) -> None:
    for name in ("mmap", "mprotect"):
        answer = decide(machine, machine.numbers[name], rest, rest, protection, rest, rest, rest)
        assert (answer == bpf.ALLOW) == (not protection & 4)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@given(command=st.integers(0, 1 << 32))
def test_fcntl_reads_flags_and_no_more(machine: Machine, command: int) -> None:
    answer = decide(machine, machine.numbers["fcntl"], 3, command)
    assert (answer == bpf.ALLOW) == ((command & 0xFFFFFFFF) in (1, 2, 3))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@given(target=st.integers(0, (1 << 32) - 1))
def test_signals_reach_the_worker_alone(machine: Machine, target: int) -> None:
    assert (decide(machine, machine.numbers["tgkill"], target, target, 6) == bpf.ALLOW) == (target == PID)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@given(pid=st.integers(0, WORD), new=st.integers(0, WORD))
def test_limits_can_only_be_read_and_only_its_own(machine: Machine, pid: int, new: int) -> None:
    assert (decide(machine, machine.numbers["prlimit64"], pid, 7, new, 1) == bpf.ALLOW) == (pid == 0 and new == 0)


@pytest.mark.parametrize(
    ("name", "number"), [("openat", errno.EACCES), ("clone3", errno.ENOSYS), ("ioctl", errno.ENOTTY)]
)
def test_libraries_get_the_error_they_expect(name: str, number: int) -> None:
    for machine in MACHINES:
        assert decide(machine, machine.numbers[name]) == bpf.fail_with(number)


def test_packed_form() -> None:
    program = bpf.allow_list(X86_64, PID)
    code = bpf.assemble(program)
    assert len(code) == 8 * len(program)
    assert struct.unpack_from("=HBBI", code) == (0x20, 0, 0, 4)
    assert len(program) < 4096


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        (X86_64, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (AARCH64, "/usr/include/asm-generic/unistd.h"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_numbers_are_the_kernels(machine: Machine, header: str) -> None:
    path = Path(header)
    if not path.is_file():
        pytest.skip(f"{header} is not installed")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text(encoding="utf-8"))
    numbers = {name: int(number) for name, number in defined}
    numbers.setdefault("newfstatat", numbers.get("fstatat", -1))  # its generic name, mapped at the header's end
    used = machine.numbers | probes.NUMBERS[machine.name]
    assert {name: numbers.get(name) for name in used} == used


def test_an_unknown_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls.platform, "machine", lambda: "riscv64")
    with pytest.raises(NotImplementedError, match="riscv64"):
        syscalls.this_machine()
