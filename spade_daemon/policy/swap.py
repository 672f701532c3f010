"""New weights into a running server, as a transaction: it ends with one known version served, or with a restart.

Order: verify the checkpoint, see that the server is well, pause it, reload, name the version and read the name back,
resume, then score the canary. Whatever fails, the last good weights are put back while the server is paused; a server
whose weights are in doubt is never resumed.

What this does not promise: requests in flight go on between the resume and the canary's verdict. Their tokens carry
the new version and the true log-probabilities of whatever weights sampled them, also when the canary then fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from spade_daemon.errors import CheckpointError, SpadeError, SwapError
from spade_daemon.policy.canary import max_difference
from spade_daemon.policy.checkpoint import open_checkpoint
from spade_daemon.policy.server import RequestError, Server, ServerError, version_name

log = structlog.get_logger()

Restart = Callable[[Server], Awaitable[None]]
"""Kills and starts a server whose weights are in doubt; returns when its workers answer again."""
Failure = (ServerError, RequestError)


@dataclass(frozen=True)
class Target:
    """One version of the weights: the base model is version 0 and has neither manifest nor canary of a trainer."""

    version: int
    path: Path
    manifest: str | None = None
    """SHA-256 of the checkpoint's ``manifest.json``; ``None`` for the base model."""
    canary: tuple[float, ...] = ()
    """The trainer's log-probabilities of the canary prompt's tokens after the first; empty: only finiteness is seen."""


@dataclass(frozen=True)
class SwapResult:
    """What a swap took. ``canary_max_diff`` is ``None`` where there was nothing to compare with."""

    version: int
    seconds: float
    paused_seconds: float
    canary_max_diff: float | None


class SwapFailure(SwapError):
    """A swap did not happen. ``serving`` is what the server serves instead; ``None``: it had to be restarted."""

    def __init__(self, stage: str, message: str, serving: int | None) -> None:
        super().__init__(stage, message)
        self.serving = serving


class _Doubt(Exception):
    """Internal: ``stage`` failed after the weights may have changed."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.reason = reason


class Swapper:
    """Swaps weights; one transaction at a time for each server.

    Args:
        prompt: token ids of the canary prompt.
        tolerance: largest difference of log-probabilities between trainer and server that still counts as equal.
        restart: for a server that cannot be recovered.
    """

    def __init__(self, prompt: Sequence[int], tolerance: float, restart: Restart) -> None:
        self._prompt = tuple(prompt)
        self._tolerance = tolerance
        self._restart = restart
        self._locks: dict[str, asyncio.Lock] = {}

    async def swap(self, server: Server, target: Target, last_good: Target) -> SwapResult:
        """Bring ``server`` from ``last_good`` to ``target``.

        Should this process die on the way, the server stays paused or carries the old name: :meth:`reconcile` at the
        next start puts it right.

        Raises:
            SwapFailure: with the stage that failed and what the server serves now.
        """
        async with self._lock(server):
            return await self._swap(server, target, last_good)

    async def reconcile(self, server: Server, wanted: Target) -> SwapResult | None:
        """See that ``server`` serves ``wanted``; called at every start and after each restart of the server.

        Returns:
            The swap that it took, or ``None`` if everything was right already.

        Raises:
            SwapFailure: the server cannot be brought to ``wanted``.
        """
        async with self._lock(server):
            try:
                await server.ping()
                version, paused = await server.weight_version(), await server.is_paused()
                if version is None and not paused and wanted.version == 0:
                    # A fresh server has the base weights: it only lacks the name.
                    await server.set_weight_version(0)
                    version = await server.weight_version()
                if version == wanted.version and not paused:
                    await self._canary(server, wanted)
                    return None
            except Failure as error:
                raise SwapFailure("health", str(error), None) from error
            except _Doubt as doubt:
                log.warning("server does not serve what it says", server=server.url, reason=doubt.reason)
            return await self._swap(server, wanted, wanted)

    async def _swap(self, server: Server, target: Target, last_good: Target) -> SwapResult:
        begin = time.monotonic()
        serving = await self._prepare(server, target)
        paused_at = time.monotonic()
        try:
            await self._exchange(server, target, serving)
            paused = time.monotonic() - paused_at
            difference = await self._canary(server, target)
        except _Doubt as doubt:
            await self._recover(server, target, last_good, doubt)
            raise SwapFailure(doubt.stage, doubt.reason, last_good.version) from doubt
        result = SwapResult(target.version, time.monotonic() - begin, paused, difference)
        log.info("weights swapped", server=server.url, policy=target.version, seconds=round(result.seconds, 3))
        return result

    async def _prepare(self, server: Server, target: Target) -> int | None:
        """Everything that can be refused before anything changes; returns the version served now."""
        serving = None
        try:
            serving = await server.weight_version()
            await server.ping()
            # vLLM calls a paused engine asleep too; a paused one is what a swapper that died leaves behind.
            if await server.is_sleeping() and not await server.is_paused():
                raise SwapFailure("health", f"{server.url} sleeps: wake it up first", serving)
            if target.manifest is not None:
                await asyncio.to_thread(open_checkpoint, target.path, target.version, target.manifest, deep=True)
        except CheckpointError as error:
            raise SwapFailure("verify", str(error), serving) from error
        except Failure as error:
            raise SwapFailure("health", str(error), serving) from error
        return serving

    async def _exchange(self, server: Server, target: Target, serving: int | None) -> None:
        """Pause, reload, rename, resume. Leaves the server paused when it raises ``_Doubt``."""
        was_paused = False
        try:
            was_paused = await server.is_paused()
            await server.pause()
        except Failure as error:
            raise _Doubt("pause", str(error)) from error
        refusal = await self._reload(server, target)
        if refusal is not None:
            if was_paused or serving is None:
                raise _Doubt("reload", refusal)
            await self._resume(server)
            raise SwapFailure("reload", refusal, serving)
        await self._rename(server, target)
        await self._resume(server)

    async def _reload(self, server: Server, target: Target) -> str | None:
        """Load the weights; returns why they were refused before any changed, or ``None`` when they are loaded."""
        try:
            answers = await server.rpc("spade_swap", path=str(target.path))
        except Failure as error:
            raise _Doubt("reload", str(error)) from error
        failed = [each for each in answers if not each.get("ok")]
        if not failed:
            return None
        reason = str(failed[0].get("error", "no reason given"))
        if len(failed) < len(answers) or any(each.get("touched", True) for each in failed):
            raise _Doubt("reload", reason)
        return reason

    async def _rename(self, server: Server, target: Target) -> None:
        try:
            await server.set_weight_version(target.version)
            found = await server.weight_version()
        except Failure as error:
            raise _Doubt("version", str(error)) from error
        if found != target.version:
            raise _Doubt("version", f"{server.url} says version {found} after the swap to {target.version}")

    async def _resume(self, server: Server) -> None:
        try:
            await server.resume()
        except Failure as error:
            raise _Doubt("resume", str(error)) from error

    async def _canary(self, server: Server, target: Target) -> float | None:
        """Largest difference to the trainer's log-probabilities; scores the prompt even with nothing to compare."""
        try:
            found = await server.score(self._prompt, salt=version_name(target.version))
        except Failure as error:
            raise _Doubt("canary", str(error)) from error
        if not target.canary:
            return None
        difference = max_difference(target.canary, found)
        if difference > self._tolerance:
            raise _Doubt(
                "canary",
                f"{server.url} differs from the trainer by {difference:.3g} in log-probability, more than "
                f"policy.canary_tolerance {self._tolerance:g}",
            )
        return difference

    async def _recover(self, server: Server, target: Target, last_good: Target, doubt: _Doubt) -> None:
        """Put the last good weights back; if that fails too, restart the server and say so."""
        log.warning(
            "swap failed, going back", server=server.url, policy=target.version, stage=doubt.stage, why=doubt.reason
        )
        try:
            if last_good == target:
                raise _Doubt("recover", "there is no older version to go back to")
            await self._exchange(server, last_good, None)
            await self._canary(server, last_good)
        except _Doubt as second:
            end = await self._restarted(server, second)
            raise SwapFailure(doubt.stage, f"{doubt.reason}; {end}", None) from second

    async def _restarted(self, server: Server, doubt: _Doubt) -> str:
        """Restart a server that cannot be recovered; says in words how that went."""
        log.error("server is restarted", server=server.url, stage=doubt.stage, reason=doubt.reason)
        try:
            await self._restart(server)
        except SpadeError as error:
            return f"going back failed ({doubt}), and so did the restart: {error}"
        return f"going back failed ({doubt}): the server was restarted"

    def _lock(self, server: Server) -> asyncio.Lock:
        return self._locks.setdefault(server.url, asyncio.Lock())


__all__ = ["Restart", "SwapFailure", "SwapResult", "Swapper", "Target"]
