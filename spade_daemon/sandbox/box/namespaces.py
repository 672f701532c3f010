"""Namespaces around the whole fork server: an empty read-only root, no network, own IPC and own process ids."""

from __future__ import annotations

import os
from pathlib import Path

from . import kernel
from .syscalls import Machine

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
NEW_PIDS, NEW_NETWORK, NEW_CGROUP = 0x20000000, 0x40000000, 0x02000000
ALL = NEW_MOUNTS | NEW_UTS | NEW_IPC | NEW_PIDS | NEW_NETWORK | NEW_CGROUP
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, RECURSIVE, PRIVATE = 1, 2, 4, 8, 1 << 14, 1 << 18
DETACH = 2


def enter(machine: Machine) -> None:
    """Leave the host's namespaces; the calling process becomes the parent that waits, its child goes on as process 1.

    Call single-threaded, with everything already loaded: afterwards no file can be opened.

    Raises:
        OSError: the host does not allow it. The caller must then start afresh without this wall.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        kernel.syscall(machine.numbers["unshare"], ALL)
    else:
        kernel.syscall(machine.numbers["unshare"], ALL | NEW_USER)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    _empty_root(machine)
    _become_first_process()


def _empty_root(machine: Machine) -> None:
    kernel.mount("none", "/", None, RECURSIVE | PRIVATE)
    kernel.mount("tmpfs", "/tmp", "tmpfs", READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC, "size=4k,nr_inodes=2,mode=555")
    os.chdir("/tmp")
    kernel.syscall(machine.numbers["pivot_root"], b".", b".")
    kernel.unmount(".", DETACH)
    os.chdir("/")


def _become_first_process() -> None:
    """Own process ids begin with the next child. When it, their process 1, dies, the kernel ends all the others."""
    child = os.fork()
    if child == 0:
        return
    os.closerange(0, 64)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
