#!/usr/bin/env python3
"""Make ``.venv`` for this checkout, from nothing or from whatever is there. Standard library alone.

    python3 ops/setup.py [--extra cpu|gpu] [--quiet]

Quick when nothing has changed. May be interrupted at any point and begun again: the stamp that calls the environment
finished is written last. Two at once take turns.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from console import fail, say
from sources import pip_config, torch_backend, uv_environment

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
STAMP = VENV / "spade-setup.json"
UV_REQUIREMENT = "uv==0.13.9"
SUPPORTED = ((3, 11), (3, 12))
INTERRUPTED = 130


def main() -> None:
    """Parse the arguments, find a Python, take the lock, do what is missing."""
    parser = argparse.ArgumentParser(description="Make .venv for this checkout.")
    parser.add_argument("--extra", choices=("cpu", "gpu"), default="cpu", help="build of torch and vLLM (default: cpu)")
    parser.add_argument("--quiet", action="store_true", help="say nothing when there is nothing to do")
    arguments = parser.parse_args()
    _use_supported_python()
    _check_machine()
    lock = _take_turns()
    try:
        stamp = fingerprint(arguments.extra)
        if _is_current(stamp):
            if not arguments.quiet:
                say(f"environment is up to date ({arguments.extra})")
            return
        _install(arguments.extra)
        _write_stamp(stamp)
        say(f"environment is ready: {VENV}")
    finally:
        os.close(lock)


def lock_file(extra: str) -> Path:
    """The pinned requirements of an extra."""
    return ROOT / "ops" / "locks" / f"{extra}.txt"


def fingerprint(extra: str) -> dict[str, str]:
    """What the environment depends on. A changed value means work."""
    digest = hashlib.sha256()
    for path in (lock_file(extra), ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    version = ".".join(map(str, sys.version_info[:2]))
    return {"extra": extra, "python": version, "inputs": digest.hexdigest(), "root": str(ROOT)}


def _use_supported_python() -> None:
    """Go on under a Python that fits, if this one does not."""
    if sys.version_info[:2] in SUPPORTED:
        return
    for minor in (11, 12):
        path = shutil.which(f"python3.{minor}")
        # A version manager's shim can be on the path for a Python that is not installed: try it.
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            os.execv(path, [path, *sys.argv])
    found = ".".join(map(str, sys.version_info[:2]))
    fail(f"Python 3.11 or 3.12 is needed, this is {found}: install one, then: make PYTHON=/path/to/python3.11 …")


def _check_machine() -> None:
    machine = os.uname()
    if machine.sysname != "Linux" or machine.machine != "x86_64":
        fail(f"vLLM's wheels and the sandbox need Linux on x86_64, this is {machine.sysname} on {machine.machine}")


def _take_turns() -> int:
    """Lock the checkout's folder itself: no lock file is left over. Returns the descriptor that holds the lock."""
    descriptor = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another setup is at work in this checkout: waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _is_current(stamp: dict[str, str]) -> bool:
    try:
        written = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(written == stamp and _works(PYTHON) and (VENV / "bin" / "spade").exists())


def _works(python: Path) -> bool:
    """Whether this Python starts, is of our version, and belongs to ``.venv`` where it lies now."""
    code = "import sys; print(sys.version_info[:2] == tuple(map(int, sys.argv[1:])), sys.prefix)"
    version = [str(part) for part in sys.version_info[:2]]
    try:
        answer = subprocess.run([str(python), "-c", code, *version], capture_output=True, text=True)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == f"True {VENV}"


def _install(extra: str) -> None:
    say(f"setting up the {extra} environment in {VENV}")
    STAMP.unlink(missing_ok=True)
    _ensure_venv()
    _ensure_uv()
    environ = uv_environment(pip_config(PYTHON), os.environ)
    flags = _torch_flags(extra, environ)
    say("installing the locked packages (cold: 1 to 3 GB to download; they are cached)")
    _sync(extra, flags, environ)
    say("installing spade-daemon itself (editable)")
    project = ["pip", "install", "--quiet", "--no-deps", "--python", str(PYTHON), "--editable", str(ROOT)]
    _run([str(UV), *project], environ, "the project itself could not be installed")
    _compile_bytecode()


def _ensure_venv() -> None:
    has_pip = [str(PYTHON), "-m", "pip", "--version"]
    if _works(PYTHON) and subprocess.run(has_pip, capture_output=True).returncode == 0:
        return
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True).returncode != 0:
        fail("this Python cannot make virtual environments: apt-get install python3-venv")
    if VENV.exists():
        say("the environment there is broken or of another Python: making it anew")
        shutil.rmtree(VENV)
    _run([sys.executable, "-m", "venv", str(VENV)], dict(os.environ), "the virtual environment could not be made")


def _ensure_uv() -> None:
    wanted = UV_REQUIREMENT.partition("==")[2]
    try:
        answer = subprocess.run([str(UV), "--version"], capture_output=True, text=True).stdout.split()
    except OSError:
        answer = []
    if len(answer) > 1 and answer[1] == wanted:
        return
    say("installing uv")
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV_REQUIREMENT]
    _run(command, dict(os.environ), f"{UV_REQUIREMENT} could not be installed: does pip reach a package index?")


def pinned(extra: str, name: str) -> str | None:
    """The requirement ``name==version`` of a lock."""
    found = re.search(rf"^{re.escape(name)}==\S+", lock_file(extra).read_text(encoding="utf-8"), re.MULTILINE)
    return found.group() if found else None


def _torch_flags(extra: str, environ: dict[str, str]) -> list[str]:
    requirement = pinned(extra, "torch")
    if extra != "cpu" or requirement is None:
        return []
    flags = torch_backend(UV, PYTHON, requirement, environ)
    if flags is None:
        fail(
            f"{requirement} is in no configured place and PyTorch's CPU index was not reached: "
            "put its wheel in a folder, then: PIP_FIND_LINKS=/that/folder make …"
        )
    return flags


def _sync(extra: str, flags: list[str], environ: dict[str, str]) -> None:
    """Make the environment hold the locked packages and no others, pip and uv apart: models are fetched with pip."""
    version = "import importlib.metadata as m; print('pip==' + m.version('pip'))"
    pip = subprocess.run([str(PYTHON), "-c", version], check=True, capture_output=True, text=True).stdout
    tools = VENV / "spade-tools.txt"
    tools.write_text(f"{pip}{UV_REQUIREMENT}\n", encoding="utf-8")
    command = [str(UV), "pip", "sync", "--quiet", "--python", str(PYTHON), *flags, str(lock_file(extra)), str(tools)]
    _run(command, environ, "the locked packages could not be installed: uv says above which one and why")


def _compile_bytecode() -> None:
    """Servers start twice as fast with it, and some machines forbid Python to write any as it runs."""
    say("compiling bytecode")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Status 1 means that some file is not of this Python: packages ship templates and tests that never were.
    subprocess.run([str(PYTHON), "-m", "compileall", "-qq", "-j", "2", str(VENV / "lib")], env=environ, check=False)


def _run(command: list[str], environ: dict[str, str], problem: str) -> None:
    if subprocess.run(command, env=environ).returncode != 0:
        fail(problem)


def _write_stamp(stamp: dict[str, str]) -> None:
    fresh = STAMP.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(stamp, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(STAMP)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
