"""One connection to NATS: patient at the start, reconnecting for ever, and plain about what it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
import structlog
from nats.aio.client import Client
from nats.errors import (
    AuthorizationError,
    ConnectionClosedError,
    ConnectionReconnectingError,
    NoRespondersError,
    OutboundBufferLimitError,
)
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from spade_daemon.errors import LogError
from spade_daemon.log import server
from spade_daemon.settings import Settings

log = structlog.get_logger()
T = TypeVar("T")

REQUEST_TIMEOUT = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
RECONNECT_PAUSE = 0.25
UNSURE = (
    TimeoutError,
    NoRespondersError,
    OutboundBufferLimitError,
    ConnectionReconnectingError,
    NoStreamResponseError,
    ServiceUnavailableError,
)
"""No answer: what was asked may or may not have happened, and asking again may help."""


class Refused(Exception):
    """JetStream answered with an error. ``code`` is its ``err_code``."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} (code {code})")
        self.code = code


class Connection:
    """A NATS client with JetStream. ``nats`` is the raw client, ``js`` its JetStream context."""

    def __init__(self, address: str, patience: float) -> None:
        self.nats: Client = Client()
        self.js: JetStreamContext = self.nats.jetstream(timeout=REQUEST_TIMEOUT)
        self.address = address
        self.patience = patience
        """Seconds for which something that fails for want of a server is tried again."""
        self.closed = False
        """Closed for good, by us or because the server refused us."""
        self._waiting: set[asyncio.Timeout] = set()
        self._on_lost: set[Callable[[], None]] = set()
        self._closing = False
        self._refused = asyncio.Event()
        self._last_error: Exception | None = None

    @classmethod
    async def open(cls, settings: Settings, *, name: str) -> Connection:
        """Connect, waiting up to ``nats.connect_timeout`` for a server.

        Raises:
            LogError: no server answered in time, or it refused our password.
        """
        connection = cls(server.url(settings), settings.nats.connect_timeout)
        user, password = server.credentials(settings)
        try:
            async with asyncio.timeout(settings.nats.connect_timeout):
                await connection._connect(name, user, password)
        except TimeoutError as error:
            await connection.close()
            raise LogError(
                f"no NATS server at {connection.address} within {settings.nats.connect_timeout:g} s "
                f"({connection._last_error or 'no answer'}): start it with `spade up`, or correct nats.url"
            ) from error
        except AuthorizationError as error:
            await connection.close()
            raise LogError(
                f"the NATS server at {connection.address} refuses our password: set nats.user and nats.password, "
                "or free the port if another server holds it"
            ) from error
        return connection

    async def _connect(self, name: str, user: str | None, password: str | None) -> None:
        """The client would try a wrong password for ever; we end at the first refusal."""
        attempt = asyncio.create_task(
            self.nats.connect(
                self.address,
                name=name,
                user=user,
                password=password,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_PAUSE,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnect,
                reconnected_cb=self._on_reconnect,
                closed_cb=self._on_close,
            )
        )
        refusal = asyncio.create_task(self._refused.wait())
        try:
            await asyncio.wait({attempt, refusal}, return_when=asyncio.FIRST_COMPLETED)
            if not attempt.done():
                raise AuthorizationError
            await attempt
        finally:
            attempt.cancel()
            refusal.cancel()

    async def _on_error(self, error: Exception) -> None:
        if "authorization" in str(error).lower():
            self._refused.set()
        if str(error) != str(self._last_error):  # one line, not one for each attempt
            log.warning("nats connection error", address=self.address, error=str(error) or type(error).__name__)
        self._last_error = error

    async def _on_disconnect(self) -> None:
        if not self._closing:
            log.warning("nats disconnected", address=self.address)
        self._lost()

    async def _on_reconnect(self) -> None:
        log.info("nats reconnected", address=self.address)
        self._last_error = None

    async def _on_close(self) -> None:
        self.closed = True
        if not self._closing:
            log.error("nats connection closed for good", address=self.address, error=str(self.nats.last_error))
        self._lost()

    def _lost(self) -> None:
        """Answers under way will not come: let those who wait for them know at once."""
        now = asyncio.get_running_loop().time()
        for scope in self._waiting:
            if not scope.expired():
                scope.reschedule(now)
        for callback in tuple(self._on_lost):
            callback()

    def on_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` whenever the connection breaks; the result takes that back."""
        self._on_lost.add(callback)
        return lambda: self._on_lost.discard(callback)

    async def request(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Ask JetStream, once, and read its JSON answer (an empty one is ``{}``).

        Raises:
            Refused: it said no.
            one of UNSURE: no answer.
            ConnectionClosedError: the connection is closed for good.
        """
        async with asyncio.timeout(REQUEST_TIMEOUT) as scope:
            self._waiting.add(scope)
            try:
                reply = await self.nats.request(subject, body, timeout=2 * REQUEST_TIMEOUT, headers=headers)
            finally:
                self._waiting.discard(scope)
        answer: dict[str, Any] = orjson.loads(reply.data) if reply.data else {}
        if problem := answer.get("error"):
            raise Refused(problem.get("err_code", problem.get("code", 0)), problem.get("description", "no reason"))
        return answer

    async def patiently(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``attempt`` while it ends without an answer, for at most ``patience`` seconds.

        Raises:
            LogError: there was none in all that time, the connection is closed, or JetStream said no.
            NotFoundError: JetStream has no such thing.
        """
        try:
            async for trial in AsyncRetrying(
                retry=retry_if_exception_type(UNSURE),
                stop=stop_after_delay(self.patience),
                wait=wait_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE),
                reraise=True,
            ):
                with trial:
                    return await attempt()
        except ConnectionClosedError as error:
            raise LogError(f"{what}: the connection to {self.address} is closed ({self.nats.last_error})") from error
        except NotFoundError:
            raise
        except UNSURE as error:
            raise LogError(
                f"{what}: no answer from {self.address} in {self.patience:g} s ({error!r}); see that nats-server runs"
            ) from error
        except APIError as error:
            raise LogError(f"{what}: {self.address} refuses: {error.description} (code {error.err_code})") from error
        raise AssertionError("tenacity ends with a result or an error")

    async def close(self) -> None:
        """Close the connection; what was asked and not answered stays unsure."""
        self._closing = True
        if not self.nats.is_closed:
            await self.nats.close()
        self.closed = True
