"""One real vLLM server on a tiny random model, shared by all tests of the policy."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spade_daemon.policy.models import ensure_model
from spade_daemon.policy.server import Server
from spade_daemon.settings import load
from tests.policy.helpers import Running, free_port

START_SECONDS = 280.0


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    return ensure_model(load("test"))


@pytest.fixture(scope="session")
def running(tiny_model: Path) -> Iterator[Running]:
    """One vLLM server on the tiny model for the whole session."""
    port = free_port()
    settings = load("test", overrides=(f"policy.port={port}",))
    code = (
        "import sys; from spade_daemon.settings import load; from spade_daemon.policy.serve import exec_server; "
        f"exec_server(load('test', overrides=('policy.port={port}',)))"
    )
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            url = settings.server_urls()[0]
            first = asyncio.run(_ready(url, process, output))
            yield Running(settings, tiny_model, url, first)
        finally:
            _stop(process)


async def _ready(url: str, process: subprocess.Popen[bytes], output: Any) -> int | None:
    async with Server(url, request_timeout=30.0, admin_timeout=10.0) as server:
        waiting = asyncio.ensure_future(server.wait_ready(START_SECONDS))
        while not waiting.done():
            if process.poll() is not None:
                output.seek(0)
                raise RuntimeError(f"vLLM ended with {process.returncode}: {output.read()[-3000:].decode()}")
            await asyncio.wait([waiting], timeout=0.5)
        await waiting
        return await server.weight_version()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
