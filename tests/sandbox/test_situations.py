"""The whole hostile suite on poorer hosts: without namespaces, behind the filter alone, and without root."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from spade_daemon.sandbox import Sandbox, selftest, server
from spade_daemon.sandbox.box import landlock, walls
from tests.sandbox import hostile
from tests.sandbox.conftest import Sabotage
from tests.sandbox.games import generous, play_honestly

ROOT = Path(__file__).parents[2]
NOBODY = 65534


async def contain_all(sandbox: Sandbox) -> None:
    """All attacks but the slow ones, each followed by an honest episode."""
    for name, attack in hostile.ALL.items():
        if attack.stops & hostile.HANG or (name in hostile.RAW_X86_64 and platform.machine() != "x86_64"):
            continue
        await hostile.contain(sandbox, attack)
        await play_honestly(sandbox)


async def test_without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    if not landlock.version() >= landlock.ABI_SCOPE:
        pytest.skip("needs a kernel whose Landlock covers signals")
    monkeypatch.setattr(selftest, "MEASURED", tuple(wall for wall in selftest.MEASURED if wall != walls.NAMESPACES))
    async with Sandbox(generous()) as sandbox:
        assert walls.NAMESPACES not in sandbox.walls
        await contain_all(sandbox)


async def test_behind_the_filter_alone(monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage) -> None:
    monkeypatch.setattr(selftest, "MEASURED", (walls.SECCOMP,))
    sabotage("landlock.py", "return kernel.syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION_QUERY)", "return 0")
    sabotage("walls.py", "if os.geteuid() != 0:", "if True:")
    async with Sandbox(generous()) as sandbox:
        assert sandbox.walls == (walls.SECCOMP, walls.RLIMITS)
        assert sandbox._servers[0].walls == (walls.RLIMITS, walls.SECCOMP)
        await contain_all(sandbox)


def _python_for_nobody() -> tuple[str, dict[str, str]] | None:
    """An interpreter and environment with which a user without rights can run this project, if there is one."""
    path = os.pathsep.join([str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))])
    environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ.get("PATH", "")}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (server.interpreter(), f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        command = [python, "-c", "import pytest, pytest_asyncio, tests.sandbox.hostile"]
        try:
            run = subprocess.run(
                command, env=environment, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[], check=False
            )
        except OSError:
            continue
        if run.returncode == 0:
            return python, environment
    return None


def test_without_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests already run without root")
    found = _python_for_nobody()
    if found is None:
        pytest.skip("no interpreter here that a user without rights may run with this project")
    python, environment = found
    files = ["tests/sandbox/test_hostile.py", "tests/sandbox/test_lifecycle.py"]
    chosen = "contained or killed_daemon or fork_server"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *files]
    run = subprocess.run(
        command, env=environment, cwd=ROOT, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-4_000:] + run.stderr[-1_000:]
    assert " passed" in run.stdout
