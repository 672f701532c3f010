"""How the server is started: flags, variables, and a clear word when the port is taken."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

import pytest

from spade_daemon.errors import ConfigError
from spade_daemon.policy import serve
from spade_daemon.settings import load

MODEL = Path("/models/m")


def pairs(arguments: list[str]) -> dict[str, str]:
    return {key: value for key, value in itertools.pairwise(arguments) if key.startswith("--")}


def test_the_cpu_command():
    arguments = serve.command(load("cpu"), MODEL)
    found = pairs(arguments)
    assert found["--model"] == str(MODEL)
    assert found["--host"] == "127.0.0.1"
    assert found["--dtype"] == "float32"
    assert found["--logprobs-mode"] == "processed_logprobs"
    assert found["--generation-config"] == "vllm"
    assert found["--kv-cache-memory-bytes"] == str(1024 << 20)
    assert {"--enforce-eager", "--enable-scale-out", "--enable-prefix-caching"} <= set(arguments)


def test_the_gpu_command_has_no_cpu_flags():
    arguments = serve.command(load("gpu", overrides=("policy.tensor_parallel=2",)), MODEL)
    found = pairs(arguments)
    assert arguments[arguments.index("serve") + 1] == str(MODEL)
    assert found["--tensor-parallel-size"] == "2"
    assert "--gpu-memory-utilization" in found
    assert "--kv-cache-memory-bytes" not in found
    assert "--enforce-eager" not in arguments
    assert "OMP_WAIT_POLICY" not in serve.environment(load("gpu"))


def test_extra_arguments_come_last():
    settings = load("cpu", overrides=('policy.extra_args=["--max-num-seqs", "3"]',))
    assert serve.command(settings, MODEL)[-2:] == ["--max-num-seqs", "3"]


def test_the_environment_of_a_cpu_server():
    variables = serve.environment(load("cpu"))
    assert variables["VLLM_SERVER_DEV_MODE"] == "1"
    assert variables["HF_HUB_OFFLINE"] == "1"
    assert variables["OMP_WAIT_POLICY"] == "PASSIVE"
    assert variables["OMP_NUM_THREADS"] == "2"


def test_the_worker_extension_can_be_imported_from_the_environment():
    module, _, name = serve.CLASS.rpartition(".")
    relative = Path(*module.split(".")).with_suffix(".py")
    roots = serve.environment(load("cpu"))["PYTHONPATH"].split(os.pathsep)
    assert any((Path(root) / relative).is_file() for root in roots)
    assert name == "WeightSwap"


def test_a_taken_port_is_one_clear_line():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"policy\.port {port} .* is taken") as caught:
            serve.check_port(port)
    assert "\n" not in str(caught.value)
    serve.check_port(port)
