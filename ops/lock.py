#!/usr/bin/env python3
"""Write or check ``ops/locks``: every package of an extra, pinned with its hashes.

    .venv/bin/python ops/lock.py [--check | --upgrade]

Without a flag, pins that still fit stay. ``--check`` writes nothing and fails when a lock does not pin what
``pyproject.toml`` asks for; hashes it leaves alone, since a release may gain files for other platforms at any time.
One lock serves Python 3.11 and 3.12: it is resolved for the older, whose set of packages holds the newer's.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from console import fail, say
from setup import ROOT, lock_file
from sources import PipConfig, pip_config, torch_backend, uv_environment

EXTRAS = ("cpu", "gpu")
HEADER = "# Made by `make lock` from pyproject.toml: the {extra} extra and the dev group. Do not edit.\n"
EXCLUDES = ROOT / "ops" / "locks" / "cpu-excludes.txt"
PLATFORM = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"]


def main() -> None:
    """Write both locks, or compare both with what is resolved now."""
    parser = argparse.ArgumentParser(description="Write or check the locked requirements.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="write nothing; fail when a lock is out of date")
    choice.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    arguments = parser.parse_args()
    uv = _find_uv()
    environ = uv_environment(_without_extra_indexes(pip_config(Path(sys.executable))), os.environ)
    for extra in EXTRAS:
        text = _resolve(uv, extra, arguments.upgrade, environ)
        if arguments.check:
            _compare(extra, text)
        else:
            _write(lock_file(extra), text)
            say(f"{lock_file(extra).relative_to(ROOT)}: {len(pins(text))} packages")


def _without_extra_indexes(config: PipConfig) -> PipConfig:
    """A lock must not depend on a machine's mirrors: one may hold only some files of a release, and so some hashes."""
    return {name: value for name, value in config.items() if name != "extra-index-url"}


def _find_uv() -> Path:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else os.environ.get("UV") or shutil.which("uv")
    if not found:
        fail("uv is missing: make setup")
    return Path(found)


def _resolve(uv: Path, extra: str, upgrade: bool, environ: dict[str, str]) -> str:
    """Resolve one extra, with the present lock as preference. Returns the lock's text."""
    flags = ["--upgrade"] if upgrade else []
    if extra == "cpu":
        backend = torch_backend(uv, Path(sys.executable), _torch_requirement(), environ)
        if backend is None:
            fail("the CPU build of torch is not found: set PIP_FIND_LINKS to a folder with its wheel")
        flags += [*backend, "--excludes", str(EXCLUDES)]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        if lock_file(extra).exists():
            shutil.copy(lock_file(extra), output)
        command = [str(uv), "pip", "compile", "--quiet", "pyproject.toml", "--extra", extra, "--group", "dev"]
        command += [*PLATFORM, *flags, "--generate-hashes", "--no-header", "--annotation-style", "line"]
        command += ["--output-file", str(output)]
        if subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL).returncode != 0:
            fail(f"the {extra} extra of pyproject.toml does not resolve: uv says above why")
        return HEADER.format(extra=extra) + without_local_hashes(output.read_text(encoding="utf-8"))


def _torch_requirement() -> str:
    found = re.search(r'"(torch==[^"]+\+cpu)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        fail("pyproject.toml pins no CPU build of torch in its cpu extra")
    return found.group(1)


def without_local_hashes(text: str) -> str:
    """Drop the hashes of local versions (``1.0+cpu``): of those, a machine sees only the wheels in its folders."""
    return re.sub(r"^([\w.-]+==\S+\+\S+)((?: \\\n    --hash=\S+)+)", r"\1", text, flags=re.MULTILINE)


def pins(text: str) -> list[str]:
    """The pinned requirements of a lock, without hashes and comments."""
    return [line.removesuffix("\\").strip() for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]


def _compare(extra: str, text: str) -> None:
    path = lock_file(extra)
    present = pins(path.read_text(encoding="utf-8")) if path.exists() else []
    resolved = pins(text)
    if present == resolved:
        say(f"{path.relative_to(ROOT)} fits pyproject.toml")
        return
    lines = list(difflib.unified_diff(present, resolved, "locked", "resolved", lineterm="", n=0))
    print("\n".join(lines[:40]), file=sys.stderr)
    fail(f"{path.relative_to(ROOT)} does not fit pyproject.toml: make lock, then commit it")


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


if __name__ == "__main__":
    main()
