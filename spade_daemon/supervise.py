"""Start and stop the processes of one machine: supervisord with our ``supervisord.conf``.

supervisord is a child in a session of its own, so that Ctrl-C in a terminal reaches only the caller, which then stops
everything in order. Nothing outlives the caller: when the calling thread dies, the kernel sends supervisord a SIGTERM;
when supervisord dies, the reaper ends its programs.
"""

from __future__ import annotations

import configparser
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel

from spade_daemon.errors import ConfigError, MissingPartError
from spade_daemon.processes import ProcessClient, ProcessStatus, client, socket_path
from spade_daemon.resources import resource
from spade_daemon.sessions import end_session, is_copy_of, members
from spade_daemon.settings import Settings

log = structlog.get_logger()

START_SECONDS = 60.0
STOP_MARGIN_SECONDS = 15.0
POLL_SECONDS = 0.05
MAX_SOCKET_PATH = 98
"""Bytes: the kernel's limit for a Unix socket, less the suffix that supervisord adds while it binds."""
PR_SET_PDEATHSIG = 1


class Supervisor:
    """A running supervisord, child of this process."""

    def __init__(self, process: subprocess.Popen[bytes], processes: ProcessClient, stop_seconds: float) -> None:
        self._process = process
        self._client = processes
        self._stop_seconds = stop_seconds

    @property
    def pid(self) -> int:
        """supervisord's process id, which is also the number of its session."""
        return self._process.pid

    def running(self) -> bool:
        """Whether supervisord itself is still there."""
        return self._process.poll() is None

    def processes(self) -> list[ProcessStatus]:
        """The programs and their states. Raises ``MissingPartError`` when supervisord does not answer."""
        return self._client.processes()

    def restart(self, name: str) -> None:
        """Stop a program and start it again; see ``ProcessClient.restart``."""
        self._client.restart(name)

    def stop(self) -> bool:
        """Stop trainer, daemon, policy and log, in this order, each within its own deadline; then supervisord. Blocks.

        Whatever is left after the deadlines is killed, so that no process stays. May be called again.

        Returns:
            Whether all ended by themselves.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(self._stop_seconds)
            orderly = True
        except subprocess.TimeoutExpired:
            orderly = False
        killed = [member.pid for member in end_session(self._process.pid)]
        self._process.wait()
        if killed:
            log.warning("processes had to be killed", pids=killed, after_seconds=self._stop_seconds)
        return orderly and not killed


def start(settings: Settings, boot: str, *, python: Path | None = None) -> Supervisor:
    """Start supervisord and through it all programs. Returns once supervisord answers; the programs start meanwhile.

    Call it from a thread that lives as long as the programs shall: the main thread.

    Args:
        settings: handed to the programs whole, as environment variables.
        boot: identity of this start, handed on as ``SPADE_BOOT``.
        python: the Python that runs the programs; default: this one.

    Raises:
        ConfigError: the run is up already, or its folder's path is too long for a Unix socket.
        MissingPartError: supervisord did not start; the message holds its last words.
    """
    home = settings.run_home()
    if len(os.fsencode(socket_path(settings))) > MAX_SOCKET_PATH:
        raise ConfigError(f"home: {home} is too long a path for a Unix socket: set SPADE_HOME to a shorter one")
    processes = client(settings)
    if processes.alive():
        raise ConfigError(
            f"run {settings.run!r} is up already (supervisord {processes.supervisor_pid()}): spade down first"
        )
    (home / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
    conf = resource("supervisord.conf")
    environ = os.environ | environment(settings, boot, python or Path(sys.executable))
    environ.pop("SPADE_CONFIG", None)  # All that it said is in the settings, and flags have overruled some of it.
    last_words = home / "logs" / "supervisord.stderr"
    command = [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "--configuration", str(conf)]
    with last_words.open("wb") as errors:
        process = subprocess.Popen(
            command,
            env=environ,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_end_with_parent(),
        )
    _wait_until_answering(process, processes, last_words)
    _wait_until_launched(process.pid)
    log.info("programs are starting", supervisord=process.pid, home=str(home))
    return Supervisor(process, processes, stop_seconds(conf))


def environment(settings: Settings, boot: str, python: Path) -> dict[str, str]:
    """The variables that ``supervisord.conf`` and its programs read. ``settings.load`` reads the settings back."""
    return settings_environment(settings) | {
        "SPADE_BOOT": boot,
        "SPADE_PYTHON": str(python),
        "SPADE_RUN_HOME": str(settings.run_home()),
        "SPADE_AUTOSTART_NATS": _flag(settings.nats.url is None),
        "SPADE_AUTOSTART_POLICY": _flag(not settings.policy.servers),
        "SPADE_AUTOSTART_TRAINER": _flag(settings.trainer.max_checkpoints != 0),
        # The programs stand in the run's folder, so a checkout that is not installed must still be found.
        "PYTHONPATH": os.pathsep.join(filter(None, [_package_root(), os.environ.get("PYTHONPATH")])),
    }


def settings_environment(settings: Settings) -> dict[str, str]:
    """Every value of the tree as ``SPADE_SECTION__FIELD``. ``None`` is left out: it is the default of its field."""
    values = {f"SPADE_{'__'.join(path).upper()}": text for path, text in _flatten(settings, ())}
    return values | {
        "SPADE_HOME": str(settings.home),
        "SPADE_CACHE": str(settings.cache),
        "SPADE_PROFILE": settings.profile,
    }


def _flatten(section: BaseModel, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    found: list[tuple[tuple[str, ...], str]] = []
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            found += _flatten(value, (*path, name))
        elif value is not None:
            found.append(((*path, name), _toml(value)))
    return found


def _toml(value: Any) -> str:
    """A TOML value. JSON's strings, numbers, booleans and arrays are TOML's as well."""
    return json.dumps(list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value)


def stop_seconds(conf: Path) -> float:
    """The longest an orderly stop may take: the programs stop one after the other, each within its own limit."""
    parser = configparser.RawConfigParser(inline_comment_prefixes=(" ;",))
    parser.read_string(conf.read_text(encoding="utf-8"))
    limits = [
        parser.getfloat(name, "stopwaitsecs") for name in parser.sections() if parser.has_option(name, "stopwaitsecs")
    ]
    return sum(limits) + STOP_MARGIN_SECONDS


def _wait_until_answering(process: subprocess.Popen[bytes], processes: ProcessClient, last_words: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not processes.alive():
        if process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            continue
        end_session(process.pid)
        process.wait()
        said = last_words.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise MissingPartError(f"supervisord did not start: {said[-1]}; see {last_words.parent}")


def _wait_until_launched(session: int) -> None:
    """Wait out the moment in which a program is still a copy of supervisord and would lose a signal to stop."""
    deadline = time.monotonic() + START_SECONDS
    while any(is_copy_of(member.pid, session) for member in members(session)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _end_with_parent() -> Callable[[], None]:
    """For ``preexec_fn``: the kernel shall send SIGTERM when the thread that started us is gone, however it ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return arrange


def _package_root() -> str:
    return str(Path(__file__).resolve().parents[1])


def _flag(value: bool) -> str:
    return "true" if value else "false"
