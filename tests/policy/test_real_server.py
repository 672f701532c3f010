"""A real vLLM server: the contract, numbers against transformers, swaps under load, bad checkpoints."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from spade_daemon.policy.canary import canary_ids
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.policy.server import Server, version_name
from spade_daemon.policy.swap import SwapFailure, Swapper, Target
from spade_daemon.policy.tokens import Completion
from tests.policy import contract
from tests.policy.helpers import Running, perturbed, write_checkpoint

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

EXACT = 1e-3
"""Two float32 implementations of one model agree to this in every log-probability."""
PROMPT = tuple(range(200, 232))


@cache
def reference(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


@torch.no_grad()
def logprobs(path: Path, ids: tuple[int, ...], temperature: float = 1.0) -> list[float]:
    """Log-probabilities of ``ids[1:]`` by transformers."""
    logits = reference(path)(torch.tensor([ids])).logits[0, :-1] / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:]).unsqueeze(1)).squeeze(1).tolist()


def worst(a: Any, b: Any) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


class NoRestart:
    """These faults must all be survived without one."""

    async def __call__(self, server: Server) -> None:
        raise AssertionError(f"{server.url} should not need a restart")


@pytest.fixture(scope="module")
def prompt(tiny_model: Path) -> tuple[int, ...]:
    return canary_ids(ChatTokens.load(tiny_model))


@pytest.fixture(scope="module")
def swapper(prompt: tuple[int, ...]) -> Swapper:
    return Swapper(prompt, tolerance=0.05, restart=NoRestart())


@pytest.fixture(scope="module")
def base(tiny_model: Path, prompt: tuple[int, ...]) -> Target:
    return Target(0, tiny_model, canary=tuple(logprobs(tiny_model, prompt)))


@pytest.fixture(scope="module")
def checkpoints(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, prompt: tuple[int, ...]
) -> Iterator[list[Target]]:
    """Two good checkpoints with the canary values of the trainer's side."""
    home, targets = tmp_path_factory.mktemp("run"), []
    for version in (1, 2):
        path, digest = write_checkpoint(tiny_model, home, version, perturbed(tiny_model, version))
        targets.append(Target(version, path, digest, tuple(logprobs(path, prompt))))
    yield targets
    reference.cache_clear()


@pytest.fixture
async def server(running: Running, swapper: Swapper, base: Target) -> AsyncIterator[Server]:
    """The shared server, brought back to the base model before each test."""
    async with running.client() as client:
        if await client.weight_version() != 0:
            await swapper.swap(client, base, base)
        yield client


def test_a_fresh_server_has_no_version(running: Running):
    assert running.first_version is None


@pytest.mark.parametrize("check", contract.CONTRACT, ids=lambda check: check.__name__)
async def test_the_contract(server: Server, check: Any):
    await check(server)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
async def test_logprobs_are_those_of_transformers_at_the_temperature(server: Server, base: Target, temperature: float):
    reply = await server.generate(PROMPT, max_tokens=64, temperature=temperature, stop_ids=(), salt="v000000", seed=1)
    expected = logprobs(base.path, PROMPT + reply.ids, temperature)[len(PROMPT) - 1 :]
    assert worst(reply.logprobs, expected) < EXACT


async def test_scores_are_those_of_transformers(server: Server, base: Target):
    assert worst(await server.score(PROMPT, salt="v000000"), logprobs(base.path, PROMPT)) < EXACT


async def test_seeds_repeat(server: Server):
    ask = {"max_tokens": 16, "temperature": 1.0, "stop_ids": (), "salt": "v000000"}
    one = await server.generate(PROMPT, seed=5, **ask)
    two = await server.generate(PROMPT, seed=5, **ask)
    other = await server.generate(PROMPT, seed=6, **ask)
    assert one.ids == two.ids != other.ids


async def test_swapped_weights_are_the_checkpoint(
    server: Server, swapper: Swapper, base: Target, checkpoints: list[Target]
):
    """Tied embeddings included: a stale output head would show here."""
    serving = base
    for target in (*checkpoints, base):
        result = await swapper.swap(server, target, serving)
        serving = target
        assert result.canary_max_diff is not None
        assert result.canary_max_diff < EXACT
        reply = await server.generate(
            PROMPT, max_tokens=32, temperature=1.0, stop_ids=(), salt=version_name(target.version)
        )
        assert worst(reply.logprobs, logprobs(target.path, PROMPT + reply.ids)[len(PROMPT) - 1 :]) < EXACT
        assert [span.version for span in reply.spans] == [target.version]


async def ask_until(server: Server, done: asyncio.Event, seed: int) -> list[Completion]:
    """One long reply after the other, so that a swap always finds one in flight."""
    replies: list[Completion] = []
    while not done.is_set():
        replies.append(
            await server.generate(
                PROMPT, max_tokens=1000, temperature=1.0, stop_ids=(), salt="v000000", seed=seed + 10 * len(replies)
            )
        )
    return replies


async def test_a_swap_in_flight_loses_nothing_and_splits_at_one_token(
    server: Server, swapper: Swapper, base: Target, checkpoints: list[Target]
):
    one, done = checkpoints[0], asyncio.Event()
    asking = [asyncio.ensure_future(ask_until(server, done, seed)) for seed in range(3)]
    await asyncio.sleep(0.5)
    await swapper.swap(server, one, base)
    done.set()
    replies = [reply for each in await asyncio.gather(*asking) for reply in each]
    assert all(len(reply.ids) == 1000 for reply in replies)
    crossing = [reply for reply in replies if len(reply.spans) > 1]
    assert crossing
    for reply in crossing:
        assert [span.version for span in reply.spans] == [0, 1]
        border = reply.spans[0].end
        old = logprobs(base.path, PROMPT + reply.ids)[len(PROMPT) - 1 :]
        new = logprobs(one.path, PROMPT + reply.ids)[len(PROMPT) - 1 :]
        assert worst(reply.logprobs, old[:border] + new[border:]) < EXACT


async def test_prefixes_of_old_weights_are_not_used(
    server: Server, swapper: Swapper, base: Target, checkpoints: list[Target]
):
    """Even under an unchanged salt: the swap drops what was cached."""
    prompt = tuple(range(500, 900))
    await server.generate(prompt, max_tokens=1, temperature=1.0, stop_ids=(), salt="same")
    await swapper.swap(server, checkpoints[0], base)
    reply = await server.generate(prompt, max_tokens=16, temperature=1.0, stop_ids=(), salt="same")
    expected = logprobs(checkpoints[0].path, prompt + reply.ids)[len(prompt) - 1 :]
    assert worst(reply.logprobs, expected) < EXACT


async def still_base(server: Server, base: Target) -> None:
    reply = await server.generate(PROMPT, max_tokens=16, temperature=1.0, stop_ids=(), salt="v000000")
    assert [span.version for span in reply.spans] == [0]
    assert worst(reply.logprobs, logprobs(base.path, PROMPT + reply.ids)[len(PROMPT) - 1 :]) < EXACT
    assert not await server.is_paused()


def broken_tensors(base: Path, fault: str) -> dict[str, torch.Tensor]:
    tensors = perturbed(base, 3)
    name = "model.layers.1.mlp.up_proj.weight"
    match fault:
        case "missing tensor":
            del tensors[name]
        case "wrong shape":
            tensors[name] = tensors[name][:-1].clone()
        case "extra tensor":
            tensors["model.extra.weight"] = torch.zeros(2)
        case "not a number":
            tensors[name] = torch.full_like(tensors[name], torch.nan)
    return tensors


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("missing tensor", "reload"),
        ("wrong shape", "reload"),
        ("extra tensor", "reload"),
        ("not a number", "canary"),
        ("other weights", "canary"),
        ("truncated", "verify"),
        ("missing directory", "verify"),
    ],
)
async def test_a_bad_checkpoint_is_refused_and_the_old_weights_serve(
    server: Server, swapper: Swapper, base: Target, checkpoints: list[Target], tmp_path: Path, fault: str, stage: str
):
    path, digest = write_checkpoint(base.path, tmp_path, 3, broken_tensors(base.path, fault))
    file = path / "model.safetensors"
    if fault == "truncated":
        file.write_bytes(file.read_bytes()[:-1000])
    if fault == "missing directory":
        path.rename(tmp_path / "elsewhere")
    with pytest.raises(SwapFailure) as caught:
        await swapper.swap(server, Target(3, path, digest, base.canary), base)
    assert (caught.value.stage, caught.value.serving) == (stage, 0)
    await still_base(server, base)


@pytest.mark.parametrize("fault", ["truncated", "empty", "no header"])
async def test_the_worker_itself_refuses_a_damaged_file(server: Server, base: Target, tmp_path: Path, fault: str):
    """Without the manifest's help: the check before the reload is what keeps the engine alive."""
    path, _ = write_checkpoint(base.path, tmp_path, 3, perturbed(base.path, 3))
    file = path / "model.safetensors"
    content = file.read_bytes()
    damaged = {"truncated": content[:-1000], "empty": b"", "no header": struct.pack("<Q", 9) + b"not json!"}
    file.write_bytes(damaged[fault])
    answers = await server.rpc("spade_swap", path=str(path))
    assert [(answer["ok"], answer["touched"]) for answer in answers] == [(False, False)]
    await still_base(server, base)


async def test_a_paused_server_of_a_dead_swapper_is_taken_over(
    server: Server, swapper: Swapper, checkpoints: list[Target]
):
    await server.pause()
    await server.rpc("spade_swap", path=str(checkpoints[1].path))
    result = await swapper.reconcile(server, checkpoints[0])
    assert result is not None
    assert await server.weight_version() == 1
    assert not await server.is_paused()


async def test_swaps_do_not_pile_up(server: Server, swapper: Swapper, base: Target, checkpoints: list[Target]):
    """Two swaps asked for at once are done one after the other."""
    one, two = checkpoints
    await asyncio.gather(swapper.swap(server, one, base), swapper.swap(server, two, one))
    assert await server.weight_version() == 2


def test_the_manifest_says_what_was_written(checkpoints: list[Target]):
    manifest = json.loads((checkpoints[0].path / "manifest.json").read_text())
    assert {entry["name"] for entry in manifest["files"]} >= {"config.json", "model.safetensors", "tokenizer.json"}
