"""Ask a running supervisord about its programs, over its Unix socket. Works from any process of the same user."""

from __future__ import annotations

import http.client
import socket
import time
import xmlrpc.client
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spade_daemon.errors import MissingPartError, UserInputError
from spade_daemon.settings import Settings

SOCKET_NAME = "supervisor.sock"
CALL_TIMEOUT = 10.0
"""Seconds for one question; supervisord answers at once or not at all."""
POLL_SECONDS = 0.1
BAD_NAME = 10
"""supervisord's fault code for a program it does not know."""
NOT_RUNNING = 70
ALREADY_STARTED = 60
DOWN_STATES = frozenset({"STOPPED", "EXITED", "FATAL"})
PROGRAMS = ("nats", "policy", "daemon", "trainer")
"""In order of their start; what else ``supervisord.conf`` names is a helper of ours."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One supervised program."""

    name: str
    state: str
    """supervisord's word: STARTING, RUNNING, BACKOFF, STOPPING, STOPPED, EXITED, FATAL or UNKNOWN."""
    pid: int | None
    uptime: float
    """Seconds since it was started; 0 when it does not run."""
    message: str
    """supervisord's own remark, such as why the last start failed."""


class ProcessClient:
    """supervisord's XML-RPC interface, typed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server = xmlrpc.client.ServerProxy("http://localhost", transport=_UnixTransport(path))

    def alive(self) -> bool:
        """Whether a supervisord answers."""
        try:
            self.supervisor_pid()
        except MissingPartError:
            return False
        return True

    def supervisor_pid(self) -> int:
        """supervisord's process id.

        Raises:
            MissingPartError: none answers.
        """
        return int(self._call("getPID"))

    def processes(self) -> list[ProcessStatus]:
        """All programs in order of their start; our own helper processes are left out.

        Raises:
            MissingPartError: no supervisord answers.
        """
        found = [_status(entry) for entry in self._call("getAllProcessInfo") if entry["name"] in PROGRAMS]
        return sorted(found, key=lambda status: PROGRAMS.index(status.name))

    def restart(self, name: str, stop_timeout: float = 180.0) -> None:
        """Stop a program, wait for its end, start it again. Returns once it is started, not once it is ready.

        Raises:
            UserInputError: there is no such program.
            MissingPartError: no supervisord answers, or the program did not stop in time.
        """
        self._call("stopProcess", name, False, allow=NOT_RUNNING)
        deadline = time.monotonic() + stop_timeout
        while (state := _status(self._call("getProcessInfo", name)).state) not in DOWN_STATES:
            if time.monotonic() > deadline:
                raise MissingPartError(f"{name} is still {state} after {stop_timeout:.0f} s: look into its log")
            time.sleep(POLL_SECONDS)
        self._call("startProcess", name, False, allow=ALREADY_STARTED)

    def _call(self, method: str, *arguments: Any, allow: int | None = None) -> Any:
        try:
            return getattr(self._server.supervisor, method)(*arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == allow:
                return None
            if fault.faultCode == BAD_NAME:
                raise UserInputError(f"no program {arguments[0]!r}: choose from {', '.join(PROGRAMS)}") from fault
            raise MissingPartError(f"supervisord refuses {method}: {fault.faultString}") from fault
        except (OSError, http.client.HTTPException, xmlrpc.client.ProtocolError) as error:
            raise MissingPartError(f"no supervisord answers at {self._path}: start the run with spade up") from error


def client(settings: Settings) -> ProcessClient:
    """The client for this run's supervisord, whether it runs or not."""
    return ProcessClient(socket_path(settings))


def socket_path(settings: Settings) -> Path:
    """Where this run's supervisord listens."""
    return settings.run_home() / SOCKET_NAME


def _status(entry: dict[str, Any]) -> ProcessStatus:
    pid = int(entry["pid"]) or None
    uptime = max(0.0, float(entry["now"] - entry["start"])) if pid else 0.0
    return ProcessStatus(entry["name"], entry["statename"], pid, uptime, entry["spawnerr"] or entry["description"])


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CALL_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CALL_TIMEOUT)
        self.sock.connect(str(self._path))


class _UnixTransport(xmlrpc.client.Transport):
    """XML-RPC over a Unix socket, with a deadline for each call, which supervisord's own client lacks."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: object) -> _UnixConnection:
        return _UnixConnection(self._path)
