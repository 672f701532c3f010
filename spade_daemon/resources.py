"""Files that come with the program: configuration templates and service files."""

from __future__ import annotations

from pathlib import Path

from spade_daemon.errors import MissingPartError

PACKAGE = Path(__file__).resolve().parent


def resource(name: str) -> Path:
    """Path of the shipped file or folder ``name``, such as ``ops/nats/nats-server.conf``.

    An installed wheel carries them in ``spade_daemon/resources``; a checkout has them in the repository root.

    Raises:
        MissingPartError: it is in neither place.
    """
    for root in (PACKAGE / "resources", PACKAGE.parent):
        if (path := root / name).exists():
            return path
    raise MissingPartError(f"{name} is missing from the installation under {PACKAGE}: install spade-daemon again")
