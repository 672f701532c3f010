"""The setup's decisions: where packages come from, when there is work, what a lock holds."""

from __future__ import annotations

import fcntl
import importlib
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "ops" / "locks"
NAMES = ("console", "sources", "setup", "lock")


def load(name: str) -> ModuleType:
    """One of the scripts, which import each other by bare name as scripts do."""
    sys.path.insert(0, str(ROOT / "ops"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "ops"))
        for each in NAMES:
            sys.modules.pop(each, None)


sources = load("sources")
lock = load("lock")


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = load("setup")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / "spade-setup.json")
    (tmp_path / "ops" / "locks").mkdir(parents=True)
    (tmp_path / "ops" / "locks" / "cpu.txt").write_text("a==1\n")
    (tmp_path / "pyproject.toml").write_text("")
    yield module


def make_venv(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (folder / "bin" / "spade").touch()


def test_pip_variables_win_over_its_files() -> None:
    listing = """
global.find-links='/from/file'
:env:.find-links='/from/variable'
install.index-url='https://for-installs'
global.index-url='https://for-everything'
download.cert='/not/for/us'
nonsense
global.broken='unterminated
"""
    found = sources.parse_pip_config(listing)
    assert found == {"find-links": "/from/variable", "index-url": "https://for-installs"}


@given(st.text())
def test_any_value_of_pip_is_read_back(value: str) -> None:
    assert sources.parse_pip_config(f"global.find-links={value!r}") == {"find-links": value}


@given(st.text())
def test_no_listing_breaks_the_reader(listing: str) -> None:
    sources.parse_pip_config(listing)


def test_places_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    config = {
        "find-links": f"{tmp_path} {tmp_path / 'gone'} https://wheels.example.org",
        "extra-index-url": f"file://{tmp_path}/gone file://{tmp_path}",
        "cert": str(tmp_path / "no.pem"),
    }
    said = sources.uv_environment(config, {})
    assert said["UV_FIND_LINKS"] == f"{tmp_path},https://wheels.example.org"
    assert said["UV_INDEX"] == f"file://{tmp_path}"
    assert said["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert "SSL_CERT_FILE" not in said


def test_the_operators_word_to_uv_stands(tmp_path: Path) -> None:
    said = sources.uv_environment({"index-url": "https://mirror"}, {"UV_DEFAULT_INDEX": "https://mine"})
    assert said["UV_DEFAULT_INDEX"] == "https://mine"
    assert sources.uv_environment({"index-url": "https://mirror"}, {})["UV_DEFAULT_INDEX"] == "https://mirror"


def test_hashes_of_local_builds_are_dropped_and_others_kept() -> None:
    first, last = "a==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n", "    # via a\nb==1 \\\n"
    text = f"{first}torch==2+cpu \\\n    --hash=sha256:3\n{last}"
    expected = f"{first}torch==2+cpu\n{last}"
    assert lock.without_local_hashes(text) == expected
    assert lock.pins(expected) == ["a==1", "torch==2+cpu", "b==1"]


def test_finished_setup_is_recognised_until_something_changes(setup: ModuleType, tmp_path: Path) -> None:
    make_venv(tmp_path / ".venv")
    stamp = setup.fingerprint("cpu")
    assert not setup._is_current(stamp)
    setup._write_stamp(stamp)
    assert setup._is_current(stamp)
    (tmp_path / "ops" / "locks" / "cpu.txt").write_text("a==2\n")
    assert not setup._is_current(setup.fingerprint("cpu"))


def test_moved_or_torn_environment_is_not_taken_for_good(setup: ModuleType, tmp_path: Path) -> None:
    make_venv(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rename(tmp_path / ".venv")
    stamp = setup.fingerprint("cpu")
    setup._write_stamp(stamp)
    assert setup._is_current(stamp), "venv finds itself by its folder, so a moved one works"
    python = tmp_path / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert not setup._is_current(stamp)
    python.unlink()
    python.symlink_to(sys.executable)
    (tmp_path / ".venv" / "pyvenv.cfg").unlink()
    assert not setup._is_current(stamp)


def test_half_written_stamp_means_work(setup: ModuleType, tmp_path: Path) -> None:
    make_venv(tmp_path / ".venv")
    (tmp_path / ".venv" / "spade-setup.json").write_text('{"extra": "cp')
    assert not setup._is_current(setup.fingerprint("cpu"))


def test_two_setups_take_turns(setup: ModuleType, tmp_path: Path) -> None:
    first = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    held: list[int] = []
    second = threading.Thread(target=lambda: held.append(setup._take_turns()))
    second.start()
    second.join(0.3)
    assert second.is_alive() and held == []
    os.close(first)
    second.join(30)
    assert len(held) == 1
    os.close(held[0])


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_lock_fits_pyproject(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = project["project"]["dependencies"] + project["project"]["optional-dependencies"][extra]
    wanted += project["dependency-groups"]["dev"]
    locked = dict(pin.split("==") for pin in lock.pins((LOCKS / f"{extra}.txt").read_text(encoding="utf-8")))
    for text in wanted:
        requirement = Requirement(text)
        version = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{text} is locked at {version}"


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_lock_names_no_place_and_hashes_everything(extra: str) -> None:
    text = (LOCKS / f"{extra}.txt").read_text(encoding="utf-8")
    assert not [line for line in text.splitlines() if "://" in line or line.startswith(("-", "/", "."))]
    bare = [line for line in text.splitlines() if line[:1].isalnum() and not line.endswith("\\")]
    assert bare == (["torch==2.13.0+cpu"] if extra == "cpu" else [])


def test_cpu_lock_leaves_out_what_breaks_vllm() -> None:
    lines = (LOCKS / "cpu-excludes.txt").read_text(encoding="utf-8").splitlines()
    excluded = {line for line in lines if line and not line.startswith("#")}
    locked = {pin.split("==")[0] for pin in lock.pins((LOCKS / "cpu.txt").read_text(encoding="utf-8"))}
    assert "torchvision" in excluded
    assert not excluded & locked
    assert not {name for name in locked if name.startswith("nvidia-")}
