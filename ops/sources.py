"""Where packages come from: pip's own configuration, said again in uv's words.

uv reads neither pip's configuration files nor its ``PIP_…`` variables. A machine whose operator has set up pip (a
mirror, a folder of wheels, a certificate authority) must not be set up a second time for us.
"""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

PipConfig = dict[str, str]
"""pip's options by their long name, without dashes: ``{"find-links": "/wheels"}``."""

_RANK = {"global": 0, "install": 1, ":env:": 2}
"""Sections of pip's configuration that count for an install; a higher rank wins."""


def pip_config(python: Path) -> PipConfig:
    """Ask pip itself: it merges the files of machine, user and environment, and the ``PIP_…`` variables.

    Raises:
        subprocess.CalledProcessError: that Python has no working pip.
    """
    command = [str(python), "-m", "pip", "config", "list"]
    return parse_pip_config(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def parse_pip_config(listing: str) -> PipConfig:
    """Read the lines of ``pip config list``: ``global.find-links='/wheels'``. Other sections and lines are skipped."""
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        key, _, literal = line.partition("=")
        section, _, name = key.partition(".")
        rank = _RANK.get(section)
        if rank is None or not literal:
            continue
        try:
            value = ast.literal_eval(literal)
        except (SyntaxError, ValueError):
            continue
        if rank >= found.get(name, (-1, ""))[0]:
            found[name] = (rank, str(value))
    return {name: value for name, (_, value) in found.items()}


def uv_environment(config: PipConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv. Addresses may hold credentials: they go by variable, never on a command line.

    What the operator already says in uv's own variables stays as it is.
    """
    said: dict[str, str] = {}
    links = [place for place in config.get("find-links", "").split() if _exists(place)]
    if links:
        said["UV_FIND_LINKS"] = ",".join(links)
    if main := config.get("index-url"):
        said["UV_DEFAULT_INDEX"] = main
    more = [place for place in config.get("extra-index-url", "").split() if _exists(place)]
    if more:
        said["UV_INDEX"] = " ".join(more)
        # pip takes the best version from all indexes together; uv would stop at the first that knows the name.
        said["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    authority = config.get("cert")
    if authority and Path(authority).is_file():
        said["SSL_CERT_FILE"] = authority
    if hosts := config.get("trusted-host"):
        said["UV_INSECURE_HOST"] = " ".join(hosts.split())
    if config.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        said["UV_NO_INDEX"] = "1"
    if timeout := config.get("default-timeout") or config.get("timeout"):
        said["UV_HTTP_TIMEOUT"] = timeout
    quiet = {"UV_NO_PROGRESS": "1", "DS_BUILD_OPS": "0"}
    return said | quiet | dict(environ)


def _exists(place: str) -> bool:
    """Whether a local place is there. A remote one is taken at its word."""
    parts = urlsplit(place)
    if parts.scheme in {"http", "https"}:
        return True
    return Path(unquote(parts.path) if parts.scheme == "file" else os.path.expandvars(place)).expanduser().exists()


def torch_backend(uv: Path, python: Path, requirement: str, environ: Mapping[str, str]) -> list[str] | None:
    """uv's flags to find a CPU build of torch: none, else those for PyTorch's own index; ``None``: not to be had."""
    for flags in ([], ["--torch-backend", "cpu"]):
        command = [str(uv), "pip", "install", "--quiet", "--dry-run", "--no-deps", "--reinstall-package", "torch"]
        command += ["--python", str(python), *flags, requirement]
        if subprocess.run(command, env=dict(environ), capture_output=True).returncode == 0:
            return flags
    return None
