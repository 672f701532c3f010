"""Bringing policy servers to a version: for a new checkpoint, at every start, and for a server that was restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

from schemas.events import CheckpointPublished, SwapFailed, WeightsSwapped
from schemas.records import Canary
from spade_daemon.log.state import State
from spade_daemon.log.stored import Stored
from spade_daemon.policy.server import Server
from spade_daemon.policy.swap import SwapFailure, SwapResult, Target
from spade_daemon.services import Services


async def target_of(services: Services, checkpoint: CheckpointPublished | None) -> Target:
    """The version that ``checkpoint`` made, as a server loads it; without one, the base model."""
    if checkpoint is None:
        return Target(0, services.model)
    canary: tuple[float, ...] = ()
    if checkpoint.canary is not None:
        canary = (await services.log.blobs.get_record(Canary, checkpoint.canary)).logprobs
    return Target(checkpoint.policy, Path(checkpoint.path), checkpoint.manifest, canary)


async def swap_all(services: Services, checkpoint: CheckpointPublished, cause: Stored[Any]) -> None:
    """One server after the other, so that with several of them play never stops.

    Raises:
        SwapFailure: after it has been recorded; the caller's event is tried again.
    """
    target = await target_of(services, checkpoint)
    for server in services.policy.servers:
        serving = services.state.serving.get(_token(server))
        if serving == target.version:
            continue
        last_good = await _last_good(services, serving)
        with services.policy.held(server):
            result = await _recorded(services, server, target, cause, services.swapper.swap(server, target, last_good))
        await _record(services, server, target, result, cause)


async def serve_newest(services: Services, cause: Stored[Any] | None) -> None:
    """See that every server serves the newest version; waits for servers that are still starting."""
    for server in services.policy.servers:
        await server.wait_ready(services.settings.policy.start_timeout)
        await reconcile(services, server, cause)


async def reconcile(services: Services, server: Server, cause: Stored[Any] | None = None) -> None:
    """Bring one server to the newest version, whatever it serves now."""
    target = await target_of(services, services.state.checkpoint)
    with services.policy.held(server):
        result = await _recorded(services, server, target, cause, services.swapper.reconcile(server, target))
    if result is not None or services.state.serving.get(_token(server)) != target.version:
        await _record(services, server, target, result, cause)


async def _recorded(services: Services, server: Server, target: Target, cause: Any, swap: Any) -> SwapResult | None:
    """The swap's result; a failure becomes an event before it is raised on."""
    try:
        result: SwapResult | None = await swap
    except SwapFailure as failure:
        failed = SwapFailed(
            policy=target.version,
            server=_token(server),
            swap=uuid4().hex[:8],
            stage=failure.stage,
            error=str(failure)[:2000],
            serving=failure.serving,
        )
        await services.log.append(failed, cause=cause)
        raise
    return result


async def _record(
    services: Services, server: Server, target: Target, result: SwapResult | None, cause: Stored[Any] | None
) -> None:
    swapped = WeightsSwapped(
        policy=target.version,
        server=_token(server),
        swap=uuid4().hex[:8],
        seconds=result.seconds if result else 0.0,
        paused_seconds=result.paused_seconds if result else 0.0,
        canary_max_diff=result.canary_max_diff if result else None,
    )
    stored = await services.log.append(swapped, cause=cause)
    await services.projection.wait_for(stored.sequence)


async def _last_good(services: Services, serving: int | None) -> Target:
    """What a server goes back to: the version it serves, if its directory is still there, else the base model."""
    state: State = services.state
    path = state.checkpoints.get(serving) if serving else None
    if serving and path is not None and await asyncio.to_thread(Path(path).is_dir):
        return Target(serving, Path(path))
    return Target(0, services.model)


def _token(server: Server) -> str:
    """The server's name as a token of a subject."""
    return "".join(c if c.isalnum() else "-" for c in server.url.split("//", 1)[-1])
