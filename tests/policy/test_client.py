"""The client's judgement: what is retried, what is not, which server is asked, which tokens are accepted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault, SwapError
from spade_daemon.policy.client import OnStale, Policy
from spade_daemon.policy.server import RequestError, Server, ServerError, parse_version, version_name
from spade_daemon.settings import PolicySettings
from tests.policy import contract
from tests.policy.fake_server import FakeServer

GENERATE = "/inference/v1/generate"
PROMPT = (5, 6, 7)


def policy_of(*fakes: FakeServer, on_stale: OnStale | None = None, **settings: Any) -> Policy:
    chosen = PolicySettings(**{"retry_seconds": 20.0, "request_timeout": 20.0, "admin_timeout": 5.0} | settings)
    servers = [
        Server(
            f"http://s{number}",
            request_timeout=chosen.request_timeout,
            admin_timeout=chosen.admin_timeout,
            transport=fake.transport,
        )
        for number, fake in enumerate(fakes)
    ]
    return Policy(servers, stop_ids=(999,), max_length=100, settings=chosen, on_stale=on_stale)


@pytest.mark.parametrize("check", contract.CONTRACT, ids=lambda check: check.__name__)
async def test_the_stand_in_keeps_the_contract(check: Any):
    fake = FakeServer(version="v000000")
    async with Server("http://s", request_timeout=5.0, admin_timeout=5.0, transport=fake.transport) as server:
        await check(server)


async def test_the_stand_in_starts_stale():
    async with Server("http://s", request_timeout=5.0, admin_timeout=5.0, transport=FakeServer().transport) as server:
        await contract.unversioned_weights_are_stale(server)


@pytest.mark.parametrize("version", [0, 1, 999_999, 1_234_567])
def test_version_names_round_trip(version: int):
    assert parse_version(version_name(version)) == version


@pytest.mark.parametrize("name", ["default", "", "v1", "vx00001", "v0000011 "])
def test_other_names_are_no_version(name: str):
    assert parse_version(name) is None


@pytest.mark.parametrize(
    ("status", "body"),
    [(0, ""), (500, "engine died"), (503, "paused"), (400, "Out of range float values are not JSON compliant: nan")],
)
async def test_a_failing_server_is_asked_again(status: int, body: str):
    fake = FakeServer(version="v000002", faults=[(GENERATE, status, body)])
    async with policy_of(fake) as policy:
        reply = await policy.generate(PROMPT, max_tokens=3, temperature=1.0)
    assert reply.spans[0].version == 2
    assert fake.calls.count(GENERATE) == 2


async def test_a_refused_request_is_not_sent_again():
    fake = FakeServer(version="v000002", faults=[(GENERATE, 422, "bad field")])
    async with policy_of(fake) as policy:
        with pytest.raises(RequestError, match="bad field"):
            await policy.generate(PROMPT, max_tokens=3, temperature=1.0)
    assert fake.calls.count(GENERATE) == 1


async def test_giving_up_is_an_infrastructure_fault():
    fake = FakeServer(version="v000002", faults=[(GENERATE, 500, "down")] * 1000)
    async with policy_of(fake, retry_seconds=0.3) as policy:
        with pytest.raises(EpisodeFault, match="down") as caught:
            await policy.generate(PROMPT, max_tokens=3, temperature=1.0)
    assert caught.value.stop is StopReason.POLICY_UNAVAILABLE


async def test_a_hanging_server_hits_the_deadline():
    fake = FakeServer(version="v000002", hang={GENERATE})
    async with policy_of(fake, retry_seconds=0.1, request_timeout=0.1) as policy, asyncio.timeout(20):
        with pytest.raises(EpisodeFault, match="did not answer"):
            await policy.generate(PROMPT, max_tokens=3, temperature=1.0)


async def test_tokens_of_unversioned_weights_are_never_returned():
    fake = FakeServer(version="v000002")
    healed: list[str] = []

    async def heal(server: Server) -> None:
        healed.append(server.url)
        await server.set_weight_version(4)

    async with policy_of(fake, on_stale=heal) as policy:
        assert (await policy.generate(PROMPT, max_tokens=2, temperature=1.0)).spans[0].version == 2
        fake.version = "default"  # the server was killed and started anew
        reply = await policy.generate(PROMPT, max_tokens=2, temperature=1.0)
    assert [span.version for span in reply.spans] == [4]
    assert healed == ["http://s0"]


async def test_many_requests_heal_a_fresh_server_once():
    fake = FakeServer()
    healed: list[str] = []

    async def heal(server: Server) -> None:
        healed.append(server.url)
        await asyncio.sleep(0.05)
        await server.set_weight_version(1)

    async with policy_of(fake, on_stale=heal) as policy:
        await asyncio.gather(*(policy.generate(PROMPT, max_tokens=2, temperature=1.0) for _ in range(8)))
    assert healed == ["http://s0"]


async def test_a_fresh_server_that_nobody_heals_is_not_used():
    async with policy_of(FakeServer(), retry_seconds=0.2) as policy:
        with pytest.raises(EpisodeFault, match="without a version"):
            await policy.generate(PROMPT, max_tokens=2, temperature=1.0)


async def test_a_swap_that_fails_is_tried_again():
    attempts: list[str] = []

    async def heal(server: Server) -> None:
        attempts.append(server.url)
        if len(attempts) == 1:
            raise SwapError("verify", "not yet")
        await server.set_weight_version(1)

    async with policy_of(FakeServer(), on_stale=heal) as policy:
        await policy.generate(PROMPT, max_tokens=2, temperature=1.0)
    assert len(attempts) == 2


async def test_the_least_loaded_server_is_asked():
    fakes = [FakeServer(version="v000001", token_seconds=0.02) for _ in range(2)]
    async with policy_of(*fakes) as policy:
        await asyncio.gather(*(policy.generate(PROMPT, max_tokens=3, temperature=1.0) for _ in range(8)))
    assert [fake.calls.count(GENERATE) for fake in fakes] == [4, 4]


async def test_a_failed_server_is_passed_over():
    broken = FakeServer(version="v000001", faults=[(GENERATE, 500, "down")] * 100)
    well = FakeServer(version="v000001")
    async with policy_of(broken, well) as policy:
        for _ in range(4):
            assert (await policy.generate(PROMPT, max_tokens=3, temperature=1.0)).server == "http://s1"
    assert broken.calls.count(GENERATE) == 1


async def test_a_held_server_is_passed_over():
    first, second = FakeServer(version="v000001"), FakeServer(version="v000001")
    async with policy_of(first, second) as policy:
        with policy.held(policy.servers[0]):
            assert (await policy.generate(PROMPT, max_tokens=3, temperature=1.0)).server == "http://s1"
        assert (await policy.generate(PROMPT, max_tokens=3, temperature=1.0)).server == "http://s0"


async def test_the_salt_follows_the_version():
    fake = FakeServer(version="v000001")
    async with policy_of(fake) as policy:
        await policy.generate(PROMPT, max_tokens=1, temperature=1.0)
        fake.version = "v000002"
        await policy.generate(PROMPT, max_tokens=1, temperature=1.0)
        await policy.generate(PROMPT, max_tokens=1, temperature=1.0)
    assert [body["cache_salt"] for body in fake.bodies] == ["v000001", "v000001", "v000002"]


async def test_requests_beyond_the_limit_wait():
    fake = FakeServer(version="v000001", token_seconds=0.05)
    most = 0

    async def watch(policy: Policy) -> None:
        nonlocal most
        while True:
            await asyncio.sleep(0.005)
            most = max(most, fake.running)

    async with policy_of(fake, max_sequences=2) as policy:
        watcher = asyncio.ensure_future(watch(policy))
        await asyncio.gather(*(policy.generate(PROMPT, max_tokens=2, temperature=1.0) for _ in range(6)))
        watcher.cancel()
    assert most == 2


async def test_the_reply_is_shortened_to_the_context():
    fake = FakeServer(version="v000001")
    async with policy_of(fake) as policy:
        reply = await policy.generate(tuple(range(95)), max_tokens=50, temperature=1.0)
        assert len(reply.ids) == 5
        with pytest.raises(ValueError, match="no room"):
            await policy.generate(tuple(range(100)), max_tokens=1, temperature=1.0)


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": [1, 2], "weight_versions": [{"version": "v000001", "start": 0, "end": 1}]},
        {"token_ids": [1, 2], "weight_versions": [{"version": "v000001", "start": 1, "end": 2}]},
        {"token_ids": [1, 2], "weight_versions": None},
        {"token_ids": [1, 3], "weight_versions": [{"version": "v000001", "start": 0, "end": 2}]},
        {"token_ids": [1, 2], "finish_reason": "error"},
        {"token_ids": "no list"},
    ],
)
async def test_an_answer_that_contradicts_itself_is_a_server_fault(choice: dict[str, Any]):
    logprobs = {"content": [{"token_id": 1, "logprob": -1.0}, {"token_id": 2, "logprob": -1.0}]}
    body = json.dumps({"choices": [{"finish_reason": "stop", "logprobs": logprobs} | choice]})
    fake = FakeServer(version="v000001", faults=[(GENERATE, 200, body)])
    async with Server("http://s", request_timeout=5.0, admin_timeout=5.0, transport=fake.transport) as server:
        with pytest.raises(ServerError):
            await server.generate(PROMPT, max_tokens=2, temperature=1.0, stop_ids=(), salt="a")


async def test_a_dead_engine_behind_a_living_front_is_not_healthy():
    fake = FakeServer(hang={"/collective_rpc"})
    async with Server("http://s", request_timeout=5.0, admin_timeout=0.1, transport=fake.transport) as server:
        with pytest.raises(ServerError, match="not ready"):
            await server.wait_ready(0.3)


async def test_scores_are_read_and_retried():
    fake = FakeServer(version="v000001", faults=[(GENERATE, 500, "x")])
    async with policy_of(fake) as policy:
        assert await policy.score(PROMPT) == (-1.0, -1.0)
