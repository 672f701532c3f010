"""Attempts to reach outside, written by us. A probe that succeeds behind a wall shows that the wall does not hold it.

The same text runs in two places: unwalled or behind one wall in a process of its own (``wallcheck``), and as an
ordinary environment in a sealed worker, where not one may succeed.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Target = dict[str, Any]
"""``pid`` and readable ``address`` of the daemon, ``port`` and ``socket`` it listens on, a ``file`` to make."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
NUMBERS = {  # stands here too because this text also runs as an environment, which can import nothing of ours
    "x86_64": {"memfd_create": 319, "process_vm_readv": 310, "shmget": 29, "shmctl": 31, "unshare": 272},
    "aarch64": {"memfd_create": 279, "process_vm_readv": 270, "shmget": 194, "shmctl": 195, "unshare": 97},
}


def _call(name: str, *words: int) -> int:
    number = NUMBERS[platform.machine()][name]
    result = int(_libc.syscall(ctypes.c_long(number), *[ctypes.c_long(word) for word in words]))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def _read(target: Target) -> object:
    return Path("/etc/passwd").read_bytes()


def _write(target: Target) -> object:
    path = Path(target["file"])
    path.touch(exist_ok=False)
    path.unlink()
    return True


def _environ(target: Target) -> object:
    Path(f"/proc/{target['pid']}/environ").read_bytes()
    return True


def _connect(family: int, address: str | tuple[str, int]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect(address)
    return True


def _make_socket(family: int, kind: int) -> bool:
    socket.socket(family, kind, 0).close()
    return True


def _fork(target: Target) -> object:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


def _thread(target: Target) -> object:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return True


def _execute(target: Target) -> object:
    return os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0


def _kill(target: Target) -> object:
    os.kill(target["pid"], 0)
    return True


def _foreign_memory(target: Target) -> object:
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_long * 2)(ctypes.addressof(buffer), 8)
    there = (ctypes.c_long * 2)(target["address"], 8)
    return _call("process_vm_readv", target["pid"], ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0) > 0


def _foreign_limits(target: Target) -> object:
    limits = resource.prlimit(target["pid"], resource.RLIMIT_NOFILE)
    resource.prlimit(target["pid"], resource.RLIMIT_NOFILE, limits)
    return True


def _memory_file(target: Target) -> object:
    name = ctypes.create_string_buffer(b"probe")
    os.close(_call("memfd_create", ctypes.addressof(name), 0))
    return True


def _pipe(target: Target) -> object:
    for end in os.pipe():
        os.close(end)
    return True


def _shared_memory(target: Target) -> object:
    identity = _call("shmget", 0, 4096, 0o1600)
    _call("shmctl", identity, 0, 0)
    return True


def _writable_code(target: Target) -> object:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    return True


def _signal_owner(target: Target) -> object:
    """Ask the kernel to signal the daemon on our behalf (descriptor 3 is the worker's socket)."""
    return fcntl.fcntl(3, fcntl.F_SETOWN, target["pid"]) == 0


def _send_message(target: Target) -> object:
    connection = socket.socket(fileno=3)
    try:
        connection.sendmsg([b""])
    finally:
        connection.detach()
    return True


PROBES: dict[str, Callable[[Target], object]] = {
    "read": _read,
    "list": lambda target: list(Path("/").iterdir()),
    "stat": lambda target: Path("/etc/passwd").stat(),
    "write": _write,
    "environ": _environ,
    "tcp": lambda target: _connect(socket.AF_INET, ("127.0.0.1", target["port"])),
    "unix": lambda target: _connect(socket.AF_UNIX, "\0" + target["socket"]),
    "vsock": lambda target: _make_socket(40, socket.SOCK_STREAM),
    "netlink": lambda target: _make_socket(16, socket.SOCK_RAW),
    "fork": _fork,
    "thread": _thread,
    "exec": _execute,
    "kill": _kill,
    "foreign_memory": _foreign_memory,
    "foreign_limits": _foreign_limits,
    "memory_file": _memory_file,
    "pipe": _pipe,
    "shared_memory": _shared_memory,
    "user_namespace": lambda target: _call("unshare", 0x10000000) == 0,
    "writable_code": _writable_code,
    "signal_owner": _signal_owner,
    "send_message": _send_message,
}


def succeeding(target: Target) -> list[str]:
    """Names of the probes that reached what they tried to. ``user_namespace`` changes this process: it is last."""
    names = sorted(PROBES, key=lambda name: (name == "user_namespace", name))
    return sorted(name for name in names if _succeeds(PROBES[name], target))


def _succeeds(probe: Callable[[Target], object], target: Target) -> bool:
    try:
        return bool(probe(target))
    except (OSError, RuntimeError, ValueError):
        return False


class ProbeEnv:
    """The probes as an environment: the action is the target as JSON, the observation the list of successes."""

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Nothing to prepare."""
        return "ready", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Run all probes."""
        return json.dumps(succeeding(json.loads(action))), 0.0, True, False, {}
