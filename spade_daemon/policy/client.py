"""The policy as the rest of the house sees it: prompts in, completions out, whichever server and version answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self, TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_exception_type, wait_exponential_jitter

from schemas.words import FinishReason, StopReason
from spade_daemon.errors import EpisodeFault, SwapError
from spade_daemon.policy.server import Server, ServerError, StaleServerError, version_name
from spade_daemon.policy.tokens import Completion
from spade_daemon.settings import PolicySettings, Settings

log = structlog.get_logger()

T = TypeVar("T")

OnStale = Callable[[Server], Awaitable[None]]
"""Brings a server that was started anew to the version it should serve; a ``SwapError`` means: not yet."""
COOL_SECONDS = 2.0
"""How long a server that failed is passed over while another one serves."""


@dataclass
class _Seat:
    """One server with what this process knows of it."""

    server: Server
    slots: asyncio.Semaphore
    load: int = 0
    held: int = 0
    cool_until: float = 0.0
    version: int | None = None
    stale: asyncio.Lock = field(default_factory=asyncio.Lock)

    def rank(self, now: float) -> tuple[bool, int]:
        """Lowest first: usable servers before others, then by requests in flight."""
        return (self.held > 0 or now < self.cool_until, self.load)


class Policy:
    """Samples from the least loaded server that is up to date; tries again while none answers.

    Args:
        servers: at least one; closed by :meth:`close`.
        stop_ids: tokens that end a reply.
        max_length: context length in tokens.
        settings: limits and timeouts.
        on_stale: called when a server turns out to run unversioned weights. Without it such a server is not used.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        stop_ids: Sequence[int],
        max_length: int,
        settings: PolicySettings,
        on_stale: OnStale | None = None,
    ) -> None:
        self._seats = [_Seat(server, asyncio.Semaphore(settings.max_sequences)) for server in servers]
        self._stop_ids = tuple(stop_ids)
        self._max_length = max_length
        self._retry_seconds = settings.retry_seconds
        self.on_stale = on_stale

    @classmethod
    def connect(cls, settings: Settings, stop_ids: Sequence[int], on_stale: OnStale | None = None) -> Self:
        """A client of all servers that the settings name."""
        policy = settings.policy
        servers = [
            Server(url, request_timeout=policy.request_timeout, admin_timeout=policy.admin_timeout)
            for url in settings.server_urls()
        ]
        return cls(servers, stop_ids=stop_ids, max_length=settings.model.max_length, settings=policy, on_stale=on_stale)

    @property
    def servers(self) -> tuple[Server, ...]:
        """All servers, in the order of the settings."""
        return tuple(seat.server for seat in self._seats)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for seat in self._seats:
            await seat.server.close()

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float, seed: int | None = None
    ) -> Completion:
        """Sample one reply of at most ``max_tokens`` tokens (fewer where the context ends).

        Raises:
            EpisodeFault: ``POLICY_UNAVAILABLE``, when no server answered for ``policy.retry_seconds``.
            RequestError: a server refuses the request itself.
            ValueError: the prompt leaves no room for a token.
        """
        room = self._max_length - len(prompt_ids)
        if room < 1:
            raise ValueError(
                f"a prompt of {len(prompt_ids)} tokens leaves no room in model.max_length {self._max_length}"
            )

        async def ask(seat: _Seat) -> Completion:
            completion = await seat.server.generate(
                prompt_ids,
                max_tokens=min(max_tokens, room),
                temperature=temperature,
                stop_ids=self._stop_ids,
                salt=version_name(await self._version(seat)),
                seed=seed,
            )
            if completion.finish is FinishReason.ABORT:
                raise ServerError(f"{seat.server.url} dropped a request")
            if completion.spans:
                seat.version = completion.spans[-1].version
            return completion

        return await self._retrying(ask)

    async def score(self, ids: Sequence[int]) -> tuple[float, ...]:
        """Log-probabilities of ``ids[1:]`` under the current policy at temperature 1; raises as :meth:`generate`."""

        async def ask(seat: _Seat) -> tuple[float, ...]:
            return await seat.server.score(ids, salt=version_name(await self._version(seat)))

        return await self._retrying(ask)

    @contextmanager
    def held(self, server: Server) -> Iterator[None]:
        """Pass over ``server`` while another one serves: it takes new weights."""
        seat = next(seat for seat in self._seats if seat.server is server)
        seat.held += 1
        try:
            yield
        finally:
            seat.held -= 1
            seat.version = None

    async def _retrying(self, ask: Callable[[_Seat], Awaitable[T]]) -> T:
        retrying = AsyncRetrying(
            stop=_SinceFirstFailure(self._retry_seconds),
            wait=wait_exponential_jitter(initial=0.1, max=5.0),
            retry=retry_if_exception_type(ServerError),
        )
        try:
            return await retrying(self._once, ask)
        except RetryError as error:
            cause = error.last_attempt.exception()
            raise EpisodeFault(
                StopReason.POLICY_UNAVAILABLE, f"no policy server answered for {self._retry_seconds:.0f} s: {cause}"
            ) from cause

    async def _once(self, ask: Callable[[_Seat], Awaitable[T]]) -> T:
        now = time.monotonic()
        seat = min(self._seats, key=lambda each: each.rank(now))
        seat.load += 1
        try:
            async with seat.slots:
                return await ask(seat)
        except ServerError as error:
            seat.version = None
            seat.cool_until = time.monotonic() + COOL_SECONDS
            log.warning("policy server failed", server=seat.server.url, error=str(error))
            raise
        finally:
            seat.load -= 1

    async def _version(self, seat: _Seat) -> int:
        """The version that ``seat`` serves, brought up to date first if it was started anew."""
        if seat.version is not None:
            return seat.version
        async with seat.stale:
            if seat.version is None:
                seat.version = await seat.server.weight_version()
            if seat.version is None and self.on_stale is not None:
                log.info("policy server was started anew", server=seat.server.url)
                try:
                    await self.on_stale(seat.server)
                except SwapError as error:
                    raise StaleServerError(f"{seat.server.url} cannot be brought up to date: {error}") from error
                seat.version = await seat.server.weight_version()
        if seat.version is None:
            raise StaleServerError(f"{seat.server.url} runs weights without a version: it waits for a swap")
        return seat.version


class _SinceFirstFailure:
    """Stop when ``seconds`` have passed since the first failure: a long first attempt must not use up the retries."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first: float | None = None

    def __call__(self, state: RetryCallState) -> bool:
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        return now - self._first >= self._seconds


__all__ = ["OnStale", "Policy"]
