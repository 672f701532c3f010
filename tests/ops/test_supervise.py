"""supervisord for real, with our supervisord.conf: the programs are small scripts, the log is a real nats-server."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spade_daemon import settings as settings_module
from spade_daemon.errors import ConfigError, MissingPartError, UserInputError
from spade_daemon.log.server import command, write_config
from spade_daemon.processes import ProcessStatus, client
from spade_daemon.sessions import members
from spade_daemon.settings import Settings
from spade_daemon.supervise import Supervisor, environment, settings_environment, start, stop_seconds

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 150.0

FAKE_PYTHON = """#!/bin/sh
# Stands where the programs' Python does: `-m spade_daemon.reaper` or `-m spade_daemon.cli.main serve NAME`.
if [ "$2" = spade_daemon.reaper ]; then exec {python} "$@"; fi
if [ "$4" = nats ]; then exec {nats}; fi
exec {python} {program} "$4" {trace}
"""

PROGRAM = """
import os, signal, subprocess, sys, time
name, trace = sys.argv[1:]

def note(what):
    with open(trace, "a") as file:
        file.write(f"{what} {name}\\n")

def stop(*_):
    time.sleep(0.3)  # long enough that programs stopped at the same time would mix their lines
    note("stopped")
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
if name == "policy":  # an engine that ignores a polite request, as a stuck one does
    subprocess.Popen([sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
note("started")
while True:
    time.sleep(600)
"""


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in [name for name in os.environ if name.startswith("SPADE_")]:
        monkeypatch.delenv(name)
    ports = (f"nats.port={free_port()}", f"nats.monitor_port={free_port()}")
    return settings_module.load(profile="test", overrides=(f"home={tmp_path / 'h'}", *ports))


@pytest.fixture
def python(settings: Settings, tmp_path: Path) -> Path:
    write_config(settings)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    fake = tmp_path / "python"
    nats = " ".join(command(settings))
    trace = tmp_path / "trace"
    fake.write_text(FAKE_PYTHON.format(python=sys.executable, nats=nats, program=program, trace=trace))
    fake.chmod(0o700)
    return fake


@pytest.fixture
def supervisor(settings: Settings, python: Path) -> Iterator[Supervisor]:
    running = start(settings, "boot-1", python=python)
    yield running
    running.stop()
    assert members(running.pid) == []


def trace(tmp_path: Path) -> list[str]:
    path = tmp_path / "trace"
    return path.read_text().splitlines() if path.exists() else []


def all_started(tmp_path: Path) -> bool:
    return {"started policy", "started daemon", "started trainer"} <= set(trace(tmp_path))


def status(supervisor: Supervisor, name: str) -> ProcessStatus:
    return next(each for each in supervisor.processes() if each.name == name)


def is_serving(settings: Settings) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((settings.nats.host, settings.nats.port)) == 0


def test_programs_start_and_stop_with_the_log_last(supervisor: Supervisor, settings: Settings, tmp_path: Path) -> None:
    eventually(lambda: all_started(tmp_path) and is_serving(settings))
    assert [each.name for each in supervisor.processes()] == ["nats", "policy", "daemon", "trainer"]
    supervisor.stop()
    stopped = [line for line in trace(tmp_path) if line.startswith("stopped")]
    assert stopped == ["stopped trainer", "stopped daemon", "stopped policy"]
    log = (settings.run_home() / "logs" / "supervisord.log").read_text()
    order = [line.split("stopped: ")[1].split()[0] for line in log.splitlines() if "stopped: " in line]
    assert [name for name in order if name != "reaper"] == ["trainer", "daemon", "policy", "nats"]
    assert not is_serving(settings)
    assert not supervisor.running()


@pytest.mark.parametrize("name", ["nats", "daemon"])
def test_a_killed_program_comes_back(supervisor: Supervisor, settings: Settings, tmp_path: Path, name: str) -> None:
    eventually(lambda: all_started(tmp_path) and status(supervisor, name).state == "RUNNING")
    before = status(supervisor, name).pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    eventually(lambda: status(supervisor, name).pid not in (before, None))
    if name == "nats":
        eventually(lambda: is_serving(settings))


def test_what_a_killed_server_leaves_behind_is_ended(supervisor: Supervisor, tmp_path: Path) -> None:
    def group_of(pid: int) -> set[int]:
        return {member.pid for member in members(supervisor.pid) if member.group == pid}

    eventually(lambda: all_started(tmp_path))
    server = status(supervisor, "policy").pid
    assert server is not None
    eventually(lambda: len(group_of(server)) == 2)
    os.kill(server, signal.SIGKILL)
    eventually(lambda: group_of(server) == set())
    eventually(lambda: len(group_of(status(supervisor, "policy").pid or 0)) == 2)


def test_nothing_survives_a_killed_supervisord(supervisor: Supervisor, tmp_path: Path) -> None:
    eventually(lambda: all_started(tmp_path))
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: members(supervisor.pid) == [])
    assert {"stopped trainer", "stopped daemon"} <= set(trace(tmp_path))


def test_nothing_survives_a_killed_caller(settings: Settings, python: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from spade_daemon.settings import load; "
        "from spade_daemon.supervise import start; "
        "print(start(load(), 'boot', python=Path(sys.argv[1])).pid, flush=True); time.sleep(600)"
    )
    environ = os.environ | settings_environment(settings) | {"PYTHONPATH": str(ROOT)}
    # Its own session, so that the new supervisord is not mistaken for a member of the test's.
    caller = subprocess.Popen(
        [sys.executable, "-c", code, str(python)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert caller.stdout is not None
    lines = iter(caller.stdout.readline, "")
    session = next(int(line) for line in lines if line.strip().isdecimal())
    eventually(lambda: all_started(tmp_path))
    caller.kill()
    caller.wait()
    caller.stdout.close()
    eventually(lambda: members(session) == [])
    assert [line for line in trace(tmp_path) if "stopped" in line] == [
        "stopped trainer",
        "stopped daemon",
        "stopped policy",
    ]


def test_restart_gives_a_new_process(supervisor: Supervisor, tmp_path: Path) -> None:
    eventually(lambda: all_started(tmp_path))
    before = status(supervisor, "daemon").pid
    supervisor.restart("daemon")
    assert status(supervisor, "daemon").pid not in (before, None)
    with pytest.raises(UserInputError, match="no program 'deamon'"):
        supervisor.restart("deamon")


def test_a_run_starts_once(supervisor: Supervisor, settings: Settings, python: Path) -> None:
    with pytest.raises(ConfigError, match=f"up already .supervisord {supervisor.pid}"):
        start(settings, "boot-2", python=python)


def test_a_run_starts_over_the_remains_of_a_dead_one(settings: Settings, python: Path, tmp_path: Path) -> None:
    first = start(settings, "boot-1", python=python)
    os.kill(first.pid, signal.SIGKILL)
    first.stop()
    second = start(settings, "boot-2", python=python)
    try:
        eventually(lambda: all_started(tmp_path))
    finally:
        second.stop()


def test_only_the_owner_may_talk_to_supervisord(supervisor: Supervisor, settings: Settings) -> None:
    assert stat.S_IMODE((settings.run_home() / "supervisor.sock").stat().st_mode) == 0o700


def test_no_supervisord_is_one_clear_line(settings: Settings) -> None:
    with pytest.raises(MissingPartError, match="spade up"):
        client(settings).processes()


def test_other_peoples_servers_are_not_started(settings: Settings) -> None:
    theirs = settings.model_copy(
        update={
            "policy": settings.policy.model_copy(update={"servers": ("http://gpu:8000",)}),
            "nats": settings.nats.model_copy(update={"url": "nats://log:4222"}),
        }
    )
    variables = environment(theirs, "b", Path(sys.executable))
    assert (variables["SPADE_AUTOSTART_POLICY"], variables["SPADE_AUTOSTART_NATS"]) == ("false", "false")
    assert environment(settings, "b", Path(sys.executable))["SPADE_AUTOSTART_POLICY"] == "true"


def test_a_program_reads_the_settings_it_was_given(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (
        "trainer.lora.layers=4",
        "trainer.learning_rate=2.5e-7",
        'policy.servers=["http://a:1","http://b:2"]',
        'model.name=a "quoted" näme % \\ \u2028',
        "nats.password=007",
        f"home={tmp_path / 'elsewhere'}",
    )
    given = settings_module.load(profile="test", overrides=overrides[:4])
    given = given.model_copy(update={"home": tmp_path / "elsewhere", "run": "2024"})
    given = given.model_copy(update={"nats": given.nats.model_copy(update={"password": "007"})})
    for name, value in settings_environment(given).items():
        monkeypatch.setenv(name, value)
    assert settings_module.load() == given


def test_too_long_a_home_is_said_before_anything_starts(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set SPADE_HOME"):
        start(settings.model_copy(update={"home": tmp_path / ("x" * 100)}), "b")


def test_stop_waits_for_all_programs_one_after_the_other() -> None:
    assert stop_seconds(ROOT / "supervisord.conf") >= 30 + 30 + 60 + 120
