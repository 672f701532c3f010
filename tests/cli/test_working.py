"""Commands that need no running run: the gate, play by hand, corpus, logs, doctor; and what is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from typer.main import get_command

from spade_daemon.cli import common
from spade_daemon.cli import doctor as doctor_command
from spade_daemon.cli.main import COMMANDS, app
from spade_daemon.doctor import Finding
from spade_daemon.log.locks import STORE_LOCK, UP_LOCK, home_lock
from spade_daemon.log.log import Log
from spade_daemon.settings import Settings
from tests.cli.conftest import Spade, options, servers_of, serving
from tests.cli.recorded import SEED, record
from tests.log.facts import incident
from tests.nats_server import settings_in
from tests.vetting.environments import PROBE


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home where nothing ever ran."""
    return settings_in(tmp_path / "home")


@pytest.fixture
def probe(tmp_path: Path) -> str:
    """A good game in a file."""
    path = tmp_path / "probe.py"
    path.write_text(PROBE, encoding="utf-8")
    return str(path)


def test_a_good_file_passes_the_gate(spade: Spade, settings: Settings, probe: str) -> None:
    said = spade("env", "vet", probe, "--json", settings=settings)
    assert (said.code, said.json["accepted"], said.json["reason"]) == (0, True, None)
    assert all(check["passed"] for check in said.json["checks"])


def test_a_bad_file_fails_with_its_reason(spade: Spade, settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(PROBE.replace("def solution", "def answer"), encoding="utf-8")
    said = spade("env", "vet", str(path), settings=settings)
    assert said.code == 1 and said.lines[-1] == "rejected by runs"
    assert any(line.startswith("no  runs") and "no solution()" in line for line in said.lines)


def test_a_game_played_by_hand(spade: Spade, settings: Settings, probe: str) -> None:
    said = spade("env", "play", probe, "--seed", "3", settings=settings, stdin="measure 1\nnonsense\nseal 99\n")
    assert said.code == 0
    assert "One of the pipes" in said.lines[0] and "Pressure is" in said.out
    assert said.lines[-2:] == ["reward 0", "terminated"]
    assert spade("env", "play", probe, settings=settings, stdin="measure 1\n").code == 0, "Ctrl-D ends it"


def test_a_game_that_breaks_in_your_hands(spade: Spade, settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(PROBE.replace("self.turn += 1", "1 / 0"), encoding="utf-8")
    said = spade("env", "play", str(path), settings=settings, stdin="measure 1\n")
    assert said.code == 2 and "environment_crash" in said.err and "ZeroDivisionError" in said.err


def test_files_that_cannot_be_vetted(spade: Spade, settings: Settings, tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary.py", tmp_path / "huge.py"
    binary.write_bytes(b"x = 1\n\xff\x00")
    huge.write_bytes(b"#" * (1 << 21))
    spade("env", "vet", str(binary), settings=settings).refused(2, "binary.py is not UTF-8 text (byte 6)")
    spade("env", "vet", str(huge), settings=settings).refused(2, "huge.py has more than")
    spade("env", "vet", str(tmp_path), settings=settings).refused(2, "cannot read", "Is a directory")
    spade("env", "vet", str(tmp_path / "no.py"), settings=settings).refused(2, "cannot read", "No such file")
    spade("env", "play", str(binary), settings=settings).refused(2, "not UTF-8")


def test_documents_are_added_once(spade: Spade, settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("A text about rivers that is long enough to be kept. " * 30)
    (folder / "b.md").write_text("# Bridges\n" + "A text about bridges, and how they are built. " * 30)
    (folder / "c.bin").write_bytes(b"\xff\x00")
    first = spade("corpus", "add", str(folder), "--json", settings=settings).json
    assert (first["added"], first["duplicates"]) == (2, 0)
    again = spade("corpus", "add", str(folder), settings=settings)
    assert again.code == 0 and again.out.startswith("added 0 documents, 2 were there already")
    assert spade("corpus", "stats", "--json", settings=settings).json["documents"] == 2
    assert "documents" in spade("corpus", "stats", settings=settings).out
    missing = spade("corpus", "add", str(tmp_path / "none"), settings=settings)
    assert missing.code == 2 and "none" in missing.err and len(missing.err.splitlines()) == 1


def test_the_last_log_lines(spade: Spade, settings: Settings) -> None:
    logs = settings.run_home() / "logs"
    logs.mkdir(parents=True)
    entries = [{"time": "2026-01-01T10:11:12Z", "level": "error", "event": f"event {n}", "n": n} for n in range(9)]
    text = b"".join(orjson.dumps(entry) + b"\n" for entry in entries) + b"plain [text]\n"
    (logs / "daemon.log").write_bytes(text)
    said = spade("logs", "tail", "-n", "2", settings=settings)
    assert said.lines == ["10:11:12 error   event 8  n=8", "plain [text]"]
    assert orjson.loads(spade("logs", "tail", "-n", "2", "--json", settings=settings).lines[0])["n"] == 8
    assert len(spade("logs", "tail", "daemon", "-n", "100", settings=settings).lines) == 10
    spade("logs", "tail", "kernel", settings=settings).refused(2, "'kernel' is unknown", "trainer")
    spade("logs", "tail", "policy", settings=settings).refused(2, "policy.log does not exist", "spade up")


@pytest.mark.parametrize("ok", [True, False])
def test_doctor_says_what_to_do(spade: Spade, settings: Settings, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Finding("home", True, "here", "nothing"), Finding("ports", ok, "in use: x", "stop it")]
    monkeypatch.setattr(doctor_command, "examine", lambda *_, running: findings)
    said = spade("doctor", settings=settings)
    assert said.code == (0 if ok else 1)
    assert said.lines == [
        "ok  home         here",
        f"{'ok' if ok else 'no'}  ports        in use: x{'' if ok else '; stop it'}",
    ]
    told = spade("doctor", "--json", settings=settings)
    assert told.code == (0 if ok else 1) and [row["ok"] for row in told.json] == [True, ok]


def test_doctor_expects_the_ports_of_a_running_run_in_use(
    spade: Spade, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(doctor_command, "examine", lambda *_, running: asked.append(running) or [])
    spade("doctor", settings=settings)
    with home_lock(settings.home / UP_LOCK):
        spade("doctor", settings=settings)
    assert asked == [False, True]


def test_wrong_options_are_one_line(spade: Spade, settings: Settings, tmp_path: Path) -> None:
    spade("--set", "curriculum.slots=0", "status", settings=settings).refused(2, "curriculum.slots = 0")
    spade("--set", "curriculum.slotz=1", "status", settings=settings).refused(2, "curriculum.slotz")
    spade("--set", "nonsense", "status", settings=settings).refused(2, "section.name=value")
    spade("--profile", "tpu", "status", settings=settings).refused(2, "'tpu' is unknown")
    spade("--config", str(tmp_path / "no.toml"), "status", settings=settings).refused(2, "no.toml")
    for wrong in (["nonsense"], ["events", "tail", "-n", "many"], ["events", "tail", "-n", "-1"], ["env", "vet"]):
        said = spade(*wrong, settings=settings)
        assert said.code == 2 and "Traceback" not in said.err and said.err


def test_a_run_that_never_was(spade: Spade, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "QUICK", 0.2)
    for command in (["status"], ["replay"], ["events", "tail"], ["env", "list"], ["env", "show", SEED]):
        spade(*command, settings=settings).refused(2, "run 'main' has no log in", "spade up")
    spade("memory", "stats", settings=settings).refused(2, "has no memory yet", "spade up")
    spade("down", settings=settings).refused(2, "no run is up")
    assert not (settings.home / "nats").exists()


def test_a_run_that_is_down_is_read_through_a_server_of_the_command(
    spade: Spade, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(settings):
        recording = asyncio.run(record(settings))
    monkeypatch.setattr(common, "QUICK", 0.2)
    assert servers_of(settings.home) == []
    assert spade("replay", "--json", settings=settings).json["digest"] == recording.state.digest()
    assert spade("env", "show", SEED, "--json", settings=settings).json["code"] == PROBE
    spade("env", "show", "e-ffffffffffff", settings=settings).refused(2, "e-ffffffffffff")
    spade("--set", "run=other", "status", settings=settings).refused(1, "other")
    assert servers_of(settings.home) == [], "nothing is left running"
    with home_lock(settings.home / STORE_LOCK):
        spade("status", settings=settings).refused(2, "store.lock is held by process", "wait until it has ended")
    with home_lock(settings.home / UP_LOCK):
        spade("status", settings=settings).refused(1, "no NATS server at")
    assert servers_of(settings.home) == []
    assert spade("status", "--json", settings=settings).json["sequence"] == len(recording.events)


def test_a_second_up_of_one_home_is_refused(spade: Spade, settings: Settings) -> None:
    with home_lock(settings.home / UP_LOCK):
        spade("up", settings=settings).refused(2, "up.lock is held by process", "spade down")
    with home_lock(settings.home / STORE_LOCK):
        spade("up", settings=settings).refused(2, "store.lock is held by process", "wait")


def test_up_says_what_is_missing_before_it_starts_anything(spade: Spade, settings: Settings) -> None:
    with serving(settings):
        spade("up", settings=settings).refused(1, "ports: in use: nats.port", "--set NAME=PORT")
    assert not (settings.run_home() / "supervisor.sock").exists()


def test_help_lists_every_command_and_each_has_its_own(spade: Spade, settings: Settings) -> None:
    said = spade("--help", settings=settings)
    assert said.code == 0 and all(f"  {name} " in said.out for name in COMMANDS)
    for name in COMMANDS:
        assert spade(name, "--help", settings=settings).code == 0
    assert get_command(app) is not None


def test_a_reader_that_goes_away_gets_no_complaint(settings: Settings) -> None:
    """``spade schemas | head -1``, as a process: quiet, whether or not all was written before."""
    with _process(settings, "schemas") as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.read(1)
        run.stdout.close()
        complaint = run.stderr.read()
    assert complaint == b"" and run.returncode in (0, 1)


def test_following_goes_on_until_ctrl_c(settings: Settings) -> None:
    """``spade events tail -f``, as a process: what was there, what comes, and an end without complaint."""
    with serving(settings):
        recording = asyncio.run(record(settings))
        with _process(settings, "events", "tail", "-f", "-n", "1", "--json") as run:
            assert run.stdout is not None and run.stderr is not None
            assert orjson.loads(run.stdout.readline())["sequence"] == len(recording.events)
            asyncio.run(_append(settings))
            assert orjson.loads(run.stdout.readline())["data"]["incident"] == "late"
            run.send_signal(signal.SIGINT)
            complaint = run.stderr.read()
    assert run.returncode == 130, complaint
    assert b"Traceback" not in complaint


def test_following_a_log_file_over_its_rotation(settings: Settings) -> None:
    logs = settings.run_home() / "logs"
    logs.mkdir(parents=True)
    file = logs / "daemon.log"
    file.write_text("one\n")
    with _process(settings, "logs", "tail", "-f") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"one\n"
        with file.open("a") as more:
            more.write("two\n")
        assert run.stdout.readline() == b"two\n"
        file.rename(logs / "daemon.log.1")
        file.write_text("three\n")
        assert run.stdout.readline() == b"three\n"
        run.send_signal(signal.SIGINT)
    assert run.returncode == 130


@contextmanager
def _process(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    run = subprocess.Popen(
        [sys.executable, "-m", "spade_daemon.cli.main", *options(settings), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"SPADE_HOME": str(settings.home), "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield run
        run.wait(60)
    finally:
        run.kill()
        run.wait()


async def _append(settings: Settings) -> None:
    log = await Log.open(settings, name="late")
    await log.join_epoch(None, 10)
    await log.append(incident("late"))
    await log.close()
