"""What a policy server must do. Run against the stand-in in the fast tests and against vLLM in the slow ones."""

from __future__ import annotations

import asyncio

import pytest

from schemas.words import FinishReason
from spade_daemon.policy.server import RequestError, Server, StaleServerError, version_name

PROMPT = (1, 20, 300, 400, 500, 600)


async def unversioned_weights_are_stale(server: Server) -> None:
    """Only for a server that has just been started."""
    assert await server.weight_version() is None
    with pytest.raises(StaleServerError):
        await server.generate(PROMPT, max_tokens=2, temperature=1.0, stop_ids=(), salt="x")


async def serves_versions_and_tokens(server: Server) -> None:
    await server.set_weight_version(7)
    assert await server.weight_version() == 7
    reply = await server.generate(PROMPT, max_tokens=5, temperature=1.0, stop_ids=(), salt=version_name(7))
    assert len(reply.ids) == len(reply.logprobs) == 5
    assert all(value <= 0 for value in reply.logprobs)
    assert reply.finish is FinishReason.LENGTH
    assert [(span.version, span.start, span.end) for span in reply.spans] == [(7, 0, 5)]


async def the_stop_token_is_sampled(server: Server) -> None:
    """The token that ends a reply is among its ids, with a log-probability."""
    await server.set_weight_version(7)
    free = await server.generate(PROMPT, max_tokens=6, temperature=0.0, stop_ids=(), salt="a")
    index = next(i for i in range(2, 6) if free.ids[i] not in free.ids[:i])
    cut = await server.generate(PROMPT, max_tokens=6, temperature=0.0, stop_ids=(free.ids[index],), salt="a")
    assert cut.ids == free.ids[: index + 1]
    assert len(cut.logprobs) == index + 1
    assert cut.finish is FinishReason.STOP


async def scores_each_token_but_the_first(server: Server) -> None:
    scores = await server.score(PROMPT, salt="a")
    assert len(scores) == len(PROMPT) - 1
    assert all(value <= 0 for value in scores)


async def refuses_impossible_tokens(server: Server) -> None:
    with pytest.raises(RequestError, match="vocabulary"):
        await server.generate((1, 10**6), max_tokens=2, temperature=1.0, stop_ids=(), salt="a")


async def holds_requests_while_paused(server: Server) -> None:
    await server.set_weight_version(8)
    assert not await server.is_sleeping()
    await server.pause()
    await server.pause()
    assert await server.is_paused()
    assert await server.is_sleeping()
    waiting = asyncio.ensure_future(
        server.generate(PROMPT, max_tokens=2, temperature=1.0, stop_ids=(), salt=version_name(8))
    )
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await server.ping()
    await server.resume()
    assert not await server.is_paused()
    assert len((await waiting).ids) == 2


async def refuses_a_missing_checkpoint(server: Server) -> None:
    answers = await server.rpc("spade_swap", path="/nowhere/at/all")
    assert answers[0]["ok"] is False
    assert answers[0]["touched"] is False


CONTRACT = (
    serves_versions_and_tokens,
    the_stop_token_is_sampled,
    scores_each_token_but_the_first,
    refuses_impossible_tokens,
    holds_requests_while_paused,
    refuses_a_missing_checkpoint,
)
"""Each takes a server whose weights may have any version."""
