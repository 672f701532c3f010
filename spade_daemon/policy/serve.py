"""How our vLLM server is started: command line, environment, and the process that becomes it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import structlog

import spade_daemon
from spade_daemon.errors import ConfigError
from spade_daemon.policy.models import ensure_model
from spade_daemon.policy.server import SERVED_NAME
from spade_daemon.policy.worker_extension import CLASS
from spade_daemon.settings import Settings

log = structlog.get_logger()

HOST = "127.0.0.1"
"""The administration routes ask for no key: they must not be reachable from outside."""
MIB = 1 << 20


def command(settings: Settings, model: Path) -> list[str]:
    """The command line of the server for ``model``."""
    policy = settings.policy
    entry = _cpu_entry(settings, model) if policy.device == "cpu" else _gpu_entry(settings, model)
    return [
        *entry,
        *("--served-model-name", SERVED_NAME),
        *("--host", HOST, "--port", str(policy.port)),
        *("--dtype", settings.model.dtype),
        *("--max-model-len", str(settings.model.max_length)),
        *("--max-num-seqs", str(policy.max_sequences)),
        *("--generation-config", "vllm"),
        *("--logprobs-mode", "processed_logprobs"),
        *("--worker-extension-cls", CLASS),
        "--enable-scale-out",
        "--enable-prefix-caching",
        "--disable-uvicorn-access-log",
        *policy.extra_args,
    ]


def _cpu_entry(settings: Settings, model: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry"),
        *("--model", str(model)),
        *("--kv-cache-memory-bytes", str(settings.policy.kv_cache_mb * MIB)),
        "--enforce-eager",
    ]


def _gpu_entry(settings: Settings, model: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model)),
        *("--gpu-memory-utilization", str(settings.policy.gpu_memory_utilization)),
        *("--tensor-parallel-size", str(settings.policy.tensor_parallel)),
    ]


def environment(settings: Settings) -> dict[str, str]:
    """The variables that the server needs beyond those it inherits."""
    root = str(Path(spade_daemon.__file__).resolve().parent.parent)
    variables = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # The workers import our extension, also when the project runs from a checkout.
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
    }
    if settings.policy.device == "cpu":
        variables |= {
            "OMP_NUM_THREADS": str(settings.policy.threads),
            # Threads that spin while they wait make a shared machine many times slower.
            "OMP_WAIT_POLICY": "PASSIVE",
            "VLLM_CPU_OMP_THREADS_BIND": _cores(settings.policy.threads),
        }
    return variables


def _cores(threads: int) -> str:
    available = sorted(os.sched_getaffinity(0))
    return ",".join(str(core) for core in available[:threads])


def check_port(port: int) -> None:
    """See that ``port`` is free on loopback.

    Raises:
        ConfigError: somebody listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"policy.port {port} on {HOST} is taken ({error.strerror}): stop what listens there, "
                "or choose another with --set policy.port=…"
            ) from error


def exec_server(settings: Settings) -> None:
    """Become the vLLM server: does not return. The supervisor's signals reach vLLM itself.

    It always starts with the base model, which is version 0; newer weights come by a swap.

    Raises:
        ConfigError: the port is taken or the model is not usable.
        MissingPartError: the model cannot be fetched.
    """
    check_port(settings.policy.port)
    model = ensure_model(settings)
    arguments = command(settings, model)
    log.info("starting policy server", model=str(model), port=settings.policy.port, device=settings.policy.device)
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)
    os.execve(arguments[0], arguments, {**os.environ, **environment(settings)})


__all__ = ["HOST", "SERVED_NAME", "check_port", "command", "environment", "exec_server"]
