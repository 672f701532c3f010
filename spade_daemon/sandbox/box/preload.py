"""Modules loaded before the walls go up: afterwards no file can be opened, so nothing else can be imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

STANDARD = """
abc argparse array ast base64 binascii bisect builtins calendar cmath collections collections.abc colorsys contextlib
contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis encodings.ascii encodings.cp1252
encodings.idna encodings.latin_1 encodings.utf_16 encodings.utf_8 enum errno fcntl fnmatch fractions functools gc glob
graphlib hashlib heapq hmac html html.parser inspect io ipaddress itertools json keyword linecache locale logging
math mmap multiprocessing.shared_memory numbers opcode operator os pathlib pickle platform posix pprint queue random re
reprlib resource sched secrets select shlex shutil signal socket sqlite3 stat statistics string stringprep struct
subprocess sys tempfile textwrap threading time timeit tokenize token traceback types typing unicodedata unittest
unittest.mock urllib.parse uuid warnings weakref xml.etree.ElementTree zlib zoneinfo asyncio _strptime
""".split()  # noqa: SIM905 (a list of words reads better as words)


def standard() -> None:
    """Load what environments like to import; a module this Python was built without is left out."""
    for name in STANDARD:
        with suppress(ImportError):
            importlib.import_module(name)
    # These load further code or tables on first use.
    importlib.import_module("datetime").datetime.strptime("2000-01-01", "%Y-%m-%d")
    importlib.import_module("ctypes").CDLL(None)
    _ = f"{importlib.import_module('decimal').Decimal(1) / 3}", "a".encode("idna"), str(1.5).encode("utf-16")


def support(sources: Mapping[str, str]) -> dict[str, Any]:
    """Make the daemon's own modules importable.

    Args:
        sources: module name to source text, in the order they may import each other.

    Returns:
        What their ``__all__`` lists: bound in each environment's namespace without an import.
    """
    injected: dict[str, Any] = {}
    for name, text in sources.items():
        module = ModuleType(name)
        sys.modules[name] = module
        exec(compile(text, f"{name}.py", "exec"), vars(module))  # noqa: S102 (the project's own source)
        injected.update(_exported(module))
    return injected


def _exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", ()):
        yield name, getattr(module, name)
