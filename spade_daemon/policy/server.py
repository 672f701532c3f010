"""One vLLM server over HTTP: every call has a deadline, every answer is checked, every failure is told apart."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.records import VersionSpan
from schemas.words import FinishReason
from spade_daemon.errors import SpadeError
from spade_daemon.policy.tokens import Completion

SERVED_NAME = "policy"
VERSION_NAME = re.compile(r"^v(\d{6,})$")
FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}
NEUTRAL_SAMPLING = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Said with each request, because a server may have other defaults: the recorded log-probabilities must be those of
the plain distribution at the recorded temperature."""
POLL_SECONDS = 0.5


class ServerError(SpadeError):
    """A policy server failed or answered nonsense: another server, or the same one later, may do better."""


class RequestError(SpadeError):
    """A server refuses the request itself: sending it again cannot help."""


def version_name(version: int) -> str:
    """How a server calls a policy version."""
    return f"v{version:06d}"


def parse_version(name: str) -> int | None:
    """The policy version of a server's name for it; ``None`` for weights that nobody vouches for (a fresh server)."""
    match = VERSION_NAME.match(name)
    return int(match.group(1)) if match else None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Sampled(_Answer):
    token_id: int
    logprob: float


class _Logprobs(_Answer):
    content: list[_Sampled]


class _Span(_Answer):
    version: str
    start: int
    end: int


class _Choice(_Answer):
    finish_reason: str
    token_ids: list[int]
    logprobs: _Logprobs
    weight_versions: list[_Span] | None = None


class _PromptToken(_Answer):
    logprob: float


class _Generated(_Answer):
    choices: list[_Choice] = Field(min_length=1)
    prompt_logprobs: list[dict[int, _PromptToken] | None] | None = None


class StaleServerError(ServerError):
    """The server runs weights without a version: it was started anew and must be brought up to date first."""


class Server:
    """The routes of one server that we use.

    Args:
        url: base URL.
        request_timeout: seconds for one generation, queueing included.
        admin_timeout: seconds for any other call.
        transport: for tests that answer in the same process.
    """

    def __init__(
        self,
        url: str,
        *,
        request_timeout: float,
        admin_timeout: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.request_timeout = request_timeout
        self.admin_timeout = admin_timeout
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        self._http = httpx.AsyncClient(base_url=self.url, timeout=None, limits=limits, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def generate(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        stop_ids: Sequence[int],
        salt: str,
        seed: int | None = None,
    ) -> Completion:
        """Sample one reply.

        Args:
            salt: requests share cached prefixes only under an equal salt: the name of the policy version.

        Raises:
            StaleServerError: some token came from weights without a version.
            ServerError: transport, 5xx, NaN, or an answer that contradicts itself.
            RequestError: the request is refused.
        """
        sampling = {
            **NEUTRAL_SAMPLING,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop_token_ids": list(stop_ids),
            "logprobs": 0,
            "seed": seed,
            "detokenize": False,
        }
        answer = await self._generate(prompt_ids, sampling, salt)
        return self._completion(answer.choices[0], temperature)

    async def score(self, ids: Sequence[int], *, salt: str) -> tuple[float, ...]:
        """Log-probabilities of ``ids[1:]``, each given those before it, at temperature 1.

        Raises:
            ServerError: as :meth:`generate`; NaN weights show here.
        """
        sampling = {"max_tokens": 1, "temperature": 1.0, "logprobs": 0, "prompt_logprobs": 0, "detokenize": False}
        answer = await self._generate(ids, sampling, salt)
        found = answer.prompt_logprobs or []
        if len(found) != len(ids):
            raise ServerError(f"{self.url} scored {len(found)} of {len(ids)} tokens: check the server's version")
        try:
            return tuple((entry or {})[token].logprob for entry, token in zip(found[1:], ids[1:], strict=True))
        except KeyError as error:
            raise ServerError(f"{self.url} scored other tokens than asked: check the server's version") from error

    async def weight_version(self) -> int | None:
        """The version that the server serves; ``None`` if it was started anew."""
        return parse_version(str(_field(await self._admin("GET", "/weight_info"), "weight_version", self.url)))

    async def set_weight_version(self, version: int) -> None:
        """Name the weights that were just loaded."""
        await self._admin("POST", "/update_weight_version", {"new_version": version_name(version)})

    async def is_sleeping(self) -> bool:
        """Whether the engine gave up its memory (weights must not be loaded then), or is merely paused."""
        return bool(_field(await self._admin("GET", "/is_sleeping"), "is_sleeping", self.url))

    async def is_paused(self) -> bool:
        """Whether the engine holds all requests."""
        return bool(_field(await self._admin("GET", "/is_paused"), "is_paused", self.url))

    async def pause(self) -> None:
        """Freeze requests in flight and queue new ones. Cached keys and values are dropped: they are computed anew
        after the resume, so that each token belongs to exactly one version."""
        await self._admin("POST", "/pause?mode=keep&clear_cache=true")

    async def resume(self) -> None:
        """Go on after :meth:`pause`."""
        await self._admin("POST", "/resume")

    async def rpc(self, method: str, **arguments: str) -> list[dict[str, Any]]:
        """Call a method of every worker; one dictionary from each."""
        body = {"method": method, "kwargs": arguments, "timeout": self.admin_timeout}
        results = _field(await self._admin("POST", "/collective_rpc", body), "results", self.url)
        if not isinstance(results, list) or not results or not all(isinstance(each, dict) for each in results):
            raise ServerError(f"{self.url} {method}: no worker answered: start it with our worker extension")
        return results

    async def ping(self) -> None:
        """See that the workers are alive, which an HTTP 200 from the front does not prove.

        Raises:
            ServerError: they are not.
        """
        if not all(each.get("ok") for each in await self.rpc("spade_ping")):
            raise ServerError(f"{self.url} has a worker that is not well: restart it")

    async def wait_ready(self, seconds: float) -> None:
        """Wait until the workers answer.

        Raises:
            ServerError: not within ``seconds``.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                return await self.ping()
            except ServerError as error:
                if time.monotonic() >= end:
                    raise ServerError(
                        f"{self.url} is not ready after {seconds:.0f} s ({error}): see its log"
                    ) from error
            await asyncio.sleep(POLL_SECONDS)

    async def _generate(self, ids: Sequence[int], sampling: Mapping[str, object], salt: str) -> _Generated:
        body = {"model": SERVED_NAME, "token_ids": list(ids), "sampling_params": sampling, "cache_salt": salt}
        answer = await self._call("POST", "/inference/v1/generate", body, self.request_timeout)
        try:
            return _Generated.model_validate_json(answer)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ServerError(f"{self.url} answered {where}: {first['msg']}: check the server's version") from error

    def _completion(self, choice: _Choice, temperature: float) -> Completion:
        ids = choice.token_ids
        finish = FINISH.get(choice.finish_reason)
        if finish is None:
            raise ServerError(f"{self.url} ended a reply with {choice.finish_reason!r}: see its log")
        if [entry.token_id for entry in choice.logprobs.content] != ids:
            raise ServerError(f"{self.url} gave log-probabilities of other tokens than it sampled: check its version")
        return Completion(
            ids=tuple(ids),
            logprobs=tuple(entry.logprob for entry in choice.logprobs.content),
            finish=finish,
            spans=self._spans(choice.weight_versions or [], len(ids)),
            temperature=temperature,
            server=self.url,
        )

    def _spans(self, spans: list[_Span], length: int) -> tuple[VersionSpan, ...]:
        position, found = 0, []
        for span in spans:
            version = parse_version(span.version)
            if version is None:
                raise StaleServerError(
                    f"{self.url} serves weights called {span.version!r}: it must be brought up to date"
                )
            if span.start != position or span.end < span.start:
                raise ServerError(f"{self.url} gave version spans with a gap: check its version")
            found.append(VersionSpan(version=version, start=span.start, end=span.end))
            position = span.end
        if position != length:
            raise ServerError(f"{self.url} says for {position} of {length} tokens which version sampled them")
        return tuple(found)

    async def _admin(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        text = await self._call(method, path, body, self.admin_timeout)
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise ServerError(f"{self.url}{path} answered no JSON: is it a vLLM server?") from error
        if not isinstance(answer, dict):
            raise ServerError(f"{self.url}{path} answered no JSON object: is it a vLLM server?")
        return answer

    async def _call(self, method: str, path: str, body: Mapping[str, object] | None, timeout: float) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                response = await self._http.request(method, path, json=body)
        except TimeoutError as error:
            raise ServerError(f"{self.url}{path} did not answer within {timeout:.0f} s: see its log") from error
        except httpx.HTTPError as error:
            raise ServerError(f"{self.url}{path}: {type(error).__name__} {error}: is the server running?") from error
        if response.is_success:
            return response.content
        reason = f"{self.url}{path} answered {response.status_code}: {response.text[:300].strip()}"
        # Not-a-number weights answer 400, because NaN is no JSON: the server is ill, the request was fine.
        if response.status_code >= 500 or response.status_code in (408, 429) or "JSON compliant" in response.text:
            raise ServerError(reason)
        raise RequestError(reason)


def _field(answer: dict[str, Any], name: str, url: str) -> Any:
    if name not in answer:
        raise ServerError(f"{url} answered without {name}: check the server's version")
    return answer[name]


__all__ = [
    "SERVED_NAME",
    "RequestError",
    "Server",
    "ServerError",
    "StaleServerError",
    "parse_version",
    "version_name",
]
