"""The fork server: a single-threaded process with everything preloaded, from which each worker is forked.

It holds no secret and obeys one socket, its standard input, on which the daemon sends datagrams of JSON. When that
socket closes it exits, and the kernel kills its workers with it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from . import kernel, landlock, namespaces, preload, runner, soften, walls
from .syscalls import Machine, this_machine

CONTROL = 0
MAX_DATAGRAM = 1 << 20
SETUP_FAILED = 70
"""Exit status of a worker that could not put up its walls."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What this server gives each of its workers."""

    machine: Machine
    uid_base: int | None
    landlock_abi: int
    address_space: int
    cpu_seconds: int
    injected: dict[str, Any]
    reseed: Any
    null: int

    def plan(self, slot: int) -> walls.Plan:
        """Walls of the worker in a slot; live workers have different slots and thereby different uids."""
        uid = None if self.uid_base is None else self.uid_base + slot
        return walls.Plan(self.machine, uid, self.landlock_abi, self.address_space, self.cpu_seconds)


def main() -> None:
    """Set up as the first datagram says, report, then serve."""
    walls.die_with_parent()
    control = socket.socket(fileno=CONTROL)
    config = json.loads(control.recv(MAX_DATAGRAM))
    if os.getppid() != config["parent"]:
        raise SystemExit("the daemon is gone")
    os.environ.clear()
    try:
        setup = _prepare(config)
    except Exception as error:
        control.send(json.dumps({"refused": f"{type(error).__name__}: {error}"}).encode())
        raise SystemExit(1) from error
    around = (walls.NAMESPACES,) if config["namespaces"] else ()
    names = (*around, *setup.plan(0).names())
    control.send(json.dumps({"ready": {"walls": names, "modules": len(sys.modules)}}).encode())
    Server(control, setup).serve()


def _prepare(config: dict[str, Any]) -> Setup:
    machine = this_machine()
    preload.standard()
    injected = preload.support(config["support"])
    reseed = soften.install(soften.World(**config["world"]))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    null = os.open("/dev/null", os.O_RDWR)
    with suppress(OSError):  # under memory pressure environments go first; not every host lets us say so
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    own_size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    uid_base = config["uid_base"]
    usable = uid_base is not None and walls.may_change_user(uid_base)
    if config["namespaces"]:
        namespaces.enter(machine)
        walls.die_with_parent()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kept = (kernel.CAP_SETUID, kernel.CAP_SETGID, kernel.CAP_KILL) if usable else ()
    # CAP_KILL, because the death signal of this process must reach workers of other uids.
    kernel.keep_capabilities(kept, machine.numbers["capset"])
    return Setup(
        machine=machine,
        uid_base=uid_base if usable else None,
        landlock_abi=landlock.version(),
        address_space=own_size + config["memory_bytes"],
        cpu_seconds=config["cpu_seconds"],
        injected=injected,
        reseed=reseed,
        null=null,
    )


class Server:
    """Forks workers on request and reports their ends."""

    def __init__(self, control: socket.socket, setup: Setup) -> None:
        self._control = control
        self._setup = setup
        self._workers: dict[int, int] = {}
        """Process id to the daemon's id of the worker."""

    def serve(self) -> NoReturn:
        """Until the daemon closes the control socket."""
        gc.collect()
        gc.freeze()
        gc.disable()
        wake, wakened = os.pipe()
        for end in (wake, wakened):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(CONTROL, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if wake in ready:
                os.read(wake, 512)
                self._report_exits()
            if CONTROL in ready:
                self._spawn()

    def _spawn(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, MAX_DATAGRAM, 1)
        except ConnectionError:
            os._exit(0)
        if not message:
            os._exit(0)
        request = json.loads(message)
        try:
            pid = os.fork()
        except OSError as error:
            self._tell({"failed": request["id"], "why": str(error)})
        else:
            if pid == 0:
                _work(self._setup, descriptors[0], request)
            self._workers[pid] = request["id"]
            handle = os.pidfd_open(pid)
            self._tell({"spawned": request["id"]}, handle)
            os.close(handle)
        for descriptor in descriptors:
            os.close(descriptor)

    def _report_exits(self) -> None:
        while self._workers:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            report = {"status": status, "cpu": usage.ru_utime + usage.ru_stime}
            self._tell({"exited": self._workers.pop(pid)} | report)

    def _tell(self, message: dict[str, Any], *descriptors: int) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)
        except OSError:
            os._exit(0)


def _work(setup: Setup, connection: int, request: dict[str, Any]) -> NoReturn:
    """The child: seal itself, say so, then serve foreign code. Never returns into the server's loop."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(connection, 3)
        for stream in (0, 1, 2):
            os.dup2(setup.null, stream)
        os.closerange(4, 1 << 20)
        os.setsid()
        plan = setup.plan(request["slot"])
        walls.raise_walls(plan, plan.names())
        sys.path.clear()
        sys.path_importer_cache.clear()
        runner.mute()
        gc.enable()
        runner.send(3, {"id": 0, "nonce": request["nonce"], "ok": {"walls": plan.names()}})
    except BaseException:
        os._exit(SETUP_FAILED)
    try:
        runner.serve(3, runner.Runner(setup.injected, setup.reseed))
    finally:
        os._exit(71)
