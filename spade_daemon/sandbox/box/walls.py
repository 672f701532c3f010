"""What the walls of a worker are, and the order in which it puts them up around itself.

Each wall alone should hold an attack; together they are defence in depth. ``namespaces`` stands around the whole fork
server, the others are raised by each worker just after its fork and before it sees any foreign code.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from . import bpf, kernel, landlock
from .syscalls import Machine

NAMESPACES, UID, LANDLOCK, RLIMITS, SECCOMP = "namespaces", "uid", "landlock", "rlimits", "seccomp"
ALL = (NAMESPACES, UID, LANDLOCK, RLIMITS, SECCOMP)

OPEN_FILES = 16
STACK_BYTES = 8 << 20
PENDING_SIGNALS = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What one worker puts up."""

    machine: Machine
    uid: int | None
    """Own user and group id; ``None`` where the host lets us change to no other."""
    landlock_abi: int
    """0: the kernel has no Landlock."""
    address_space: int
    """Bytes of address space."""
    cpu_seconds: int

    def names(self) -> tuple[str, ...]:
        """The walls of this plan, in the order they go up."""
        offered = {UID: self.uid is not None, LANDLOCK: self.landlock_abi > 0, RLIMITS: True, SECCOMP: True}
        return tuple(name for name, there in offered.items() if there)


def raise_walls(plan: Plan, names: Collection[str]) -> None:
    """Put up the named walls around the calling process, for good.

    Call in a single-threaded process. The order matters: a change of uid clears the death signal and needs
    privileges; Landlock and the filter need ``no_new_privs``; the filter goes last because it forbids the rest.

    Raises:
        OSError: a wall could not be built. The process must exit without running anything.
    """
    if UID in names and plan.uid is not None:
        _change_user(plan.uid)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    die_with_parent()
    os.umask(0o777)
    if LANDLOCK in names and plan.landlock_abi:
        landlock.restrict(plan.landlock_abi)
    if RLIMITS in names:
        _limit(plan)
    if SECCOMP in names:
        kernel.install_filter(bpf.allow_list(plan.machine, os.getpid()))


def die_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)


def _change_user(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _limit(plan: Plan) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NPROC: 1,
        resource.RLIMIT_SIGPENDING: PENDING_SIGNALS,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_AS: plan.address_space,
    }
    for kind, most in limits.items():
        _set_limit(kind, most, most)
    _set_limit(resource.RLIMIT_CPU, plan.cpu_seconds, plan.cpu_seconds + 1)


def _set_limit(kind: int, soft: int, hard: int) -> None:
    """Set a limit, or keep the host's where that is already lower."""
    _, present = resource.getrlimit(kind)
    if present != resource.RLIM_INFINITY:
        soft, hard = min(soft, present), min(hard, present)
    resource.setrlimit(kind, (soft, hard))


def may_change_user(uid: int) -> bool:
    """Whether this host lets us run a worker as ``uid``, found out by a child that tries."""
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            _change_user(uid)
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    return status == 0
