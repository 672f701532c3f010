"""The files an operator uses: make targets, unit, CI script, DeepSpeed configurations, order of the tests."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "ops" / "systemd" / "spade.service"

SPADE = """#!{python}
import signal, sys, time
def stop(*_):
    print("spade stops", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, stop)
print("spade runs", sys.argv[1:], flush=True)
time.sleep(600)
"""


def test_make_alone_lists_the_targets() -> None:
    listed = subprocess.run(["make", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    for target in ("run", "test", "lint", "lock", "clean"):
        assert re.search(rf"make {target} ", listed)


def test_ctrl_c_reaches_spade_and_make_adds_no_noise(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    program = tmp_path / ".venv" / "bin" / "spade"
    program.parent.mkdir(parents=True)
    program.write_text(SPADE.format(python=sys.executable))
    program.chmod(0o700)
    # `PYTHON=true` makes the setup step a program that does nothing.
    make = subprocess.Popen(
        ["make", "run", "PYTHON=true", "PROFILE=test", "ARGS=--no-live"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert make.stdout is not None
    assert make.stdout.readline() == "spade runs ['--profile', 'test', 'up', '--no-live']\n"
    os.killpg(make.pid, signal.SIGINT)
    assert make.stdout.read().count("spade stops") == 1
    make.wait(30)


def test_quick_tests_run_first(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = servers\n")
    (tmp_path / "test_a.py").write_text(
        "import pytest\n@pytest.mark.servers\ndef test_slow(): pass\ndef test_quick(): pass\n"
    )
    (tmp_path / "test_b.py").write_text("def test_other(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "plugin_order", "-p", "no:cacheprovider", "--co", "-q"]
    environ = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    listed = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout
    assert listed.splitlines()[:3] == ["test_a.py::test_quick", "test_b.py::test_other", "test_a.py::test_slow"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_unit_is_valid(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/opt/spade/venv/bin/spade", "/bin/true")
    (tmp_path / "spade.service").write_text(text)
    (tmp_path / "spade.service.d").mkdir()
    shutil.copy(ROOT / "ops" / "systemd" / "gpu.conf", tmp_path / "spade.service.d")
    verify = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "spade.service")]
    answer = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_systemd_waits_longer_than_an_orderly_stop_takes() -> None:
    programs = configparser.RawConfigParser(inline_comment_prefixes=(" ;",))
    programs.read(ROOT / "supervisord.conf")
    needed = sum(int(programs[name].get("stopwaitsecs", "0")) for name in programs.sections())
    allowed = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert allowed and int(allowed.group(1)) > needed


def test_ci_script_parses_and_is_executable() -> None:
    script = ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("path", sorted((ROOT / "ops" / "deepspeed").glob("*.json")), ids=lambda path: path.stem)
def test_deepspeed_configurations_are_read_and_name_no_optimizer(path: Path) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    stage = re.search(r"zero(\d)", path.stem)
    assert config["zero_optimization"]["stage"] == (int(stage.group(1)) if stage else 0)
    assert config["gradient_clipping"] == 1.0
    assert "optimizer" not in config
    assert path.name in (ROOT / "ops" / "README.md").read_text(encoding="utf-8")
