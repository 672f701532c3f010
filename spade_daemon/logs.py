"""Structured logs: one JSON object a line into files, a readable form on a terminal.

Every line has ``time`` (ISO 8601, UTC), ``level``, ``event``, ``process`` and the run; reactions add handler, sequence,
environment and correlation through structlog's context.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import structlog

from spade_daemon.settings import LoggingSettings

NOISY = ("httpx", "httpcore", "filelock", "urllib3", "sentence_transformers", "faststream")


def configure(settings: LoggingSettings, *, process: str, run: str, json: bool | None = None) -> None:
    """Set up structlog and the standard library's logging for this process.

    Args:
        process: ``daemon``, ``trainer`` …; stands in every line.
        json: JSON lines; default: whenever standard output is not a terminal (the supervisor rotates the file).
    """
    as_json = not sys.stdout.isatty() if json is None else json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: list[Any] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(_dumps)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(process=process, run=run)


def _dumps(value: Any, default: Any = str, **_: Any) -> str:
    return orjson.dumps(value, default=default, option=orjson.OPT_NON_STR_KEYS).decode()
