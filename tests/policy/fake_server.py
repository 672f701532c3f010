"""A stand-in for a vLLM server with the same answers: for faults and timings that a real one does not offer on demand.

The contract tests run against it and against a real server, so that it cannot drift.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

VOCABULARY = 1000


@dataclass
class FakeServer:
    """State and scripted faults; ``transport`` goes into :class:`spade_daemon.policy.server.Server`."""

    version: str = "default"
    weights: str = "base"
    paused: bool = False
    sleeping: bool = False
    token_seconds: float = 0.0
    faults: list[tuple[str, int, str]] = field(default_factory=list)
    """(path, status, body): answered once each, in order, before the real answer; status 0 breaks the connection."""
    hang: set[str] = field(default_factory=set)
    swap_answers: list[dict[str, Any]] = field(default_factory=list)
    score_offsets: dict[str, float] = field(default_factory=dict)
    """Added to the log-probabilities of a prompt under these weights; NaN makes the answer fail as vLLM's does."""
    calls: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    """Generations in flight."""

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._handle)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.calls.append(path)
        if path in self.hang:
            await asyncio.sleep(3600)
        for fault in self.faults:
            if fault[0] == path:
                self.faults.remove(fault)
                if fault[1] == 0:
                    raise httpx.ConnectError("connection refused", request=request)
                return httpx.Response(fault[1], text=fault[2])
        body = json.loads(request.content or b"{}")
        return await self._answer(path, body)

    async def _answer(self, path: str, body: dict[str, Any]) -> httpx.Response:
        match path:
            case "/weight_info":
                return httpx.Response(200, json={"weight_version": self.version})
            case "/update_weight_version":
                self.version = body["new_version"]
                return httpx.Response(200, json={"success": True, "new_version": self.version})
            case "/is_sleeping":
                return httpx.Response(200, json={"is_sleeping": self.sleeping or self.paused})
            case "/is_paused":
                return httpx.Response(200, json={"is_paused": self.paused})
            case "/pause":
                self.paused = True
                return httpx.Response(200, json={"status": "paused"})
            case "/resume":
                self.paused = False
                return httpx.Response(200, json={"status": "resumed"})
            case "/collective_rpc":
                return httpx.Response(200, json={"results": [self._rpc(body)]})
            case "/inference/v1/generate":
                self.running += 1
                try:
                    return await self._generate(body)
                finally:
                    self.running -= 1
        return httpx.Response(404, json={"detail": "Not Found"})

    def _rpc(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["method"] == "spade_ping":
            return {"ok": True}
        if self.swap_answers:
            answer = self.swap_answers.pop(0)
            if answer.get("touched"):
                self.weights = "mixture"
            return answer
        path = Path(body["kwargs"]["path"])
        if not path.is_dir():
            return {"ok": False, "touched": False, "error": f"{path} holds no safetensors: it is not a model"}
        self.weights = str(path)
        return {"ok": True, "seconds": 0.0, "repacked": 1}

    async def _generate(self, body: dict[str, Any]) -> httpx.Response:
        self.bodies.append(body)
        await self._resumed()
        if max(body["token_ids"]) >= VOCABULARY:
            return httpx.Response(400, json={"error": {"message": "Token id is out of vocabulary", "code": 400}})
        sampling = body["sampling_params"]
        spans: list[dict[str, Any]] = []
        ids: list[int] = []
        for index in range(sampling["max_tokens"]):
            if self.token_seconds:
                await asyncio.sleep(self.token_seconds)
            await self._resumed()
            if not spans or spans[-1]["version"] != self.version:
                spans.append({"version": self.version, "start": index, "end": index})
            ids.append((sum(body["token_ids"]) + 7 * index) % VOCABULARY)
            spans[-1]["end"] = index + 1
            if ids[-1] in sampling.get("stop_token_ids", ()):
                break
        stopped = ids[-1] in sampling.get("stop_token_ids", ())
        return self._reply(body, ids, spans, "stop" if stopped else "length")

    async def _resumed(self) -> None:
        while self.paused:  # noqa: ASYNC110 (tests set the flag by hand)
            await asyncio.sleep(0.005)

    def _reply(self, body: dict[str, Any], ids: list[int], spans: list[dict[str, Any]], finish: str) -> httpx.Response:
        offset = self.score_offsets.get(self.weights, 0.0)
        if offset != offset:
            message = "Out of range float values are not JSON compliant: nan"
            return httpx.Response(400, json={"error": {"message": message, "code": 400}})
        scored = [{str(token): {"logprob": -1.0 + offset, "rank": 1}} for token in body["token_ids"]]
        choice = {
            "index": 0,
            "finish_reason": finish,
            "token_ids": ids,
            "logprobs": {"content": [{"token_id": token, "logprob": -0.5, "rank": 1} for token in ids]},
            "weight_versions": spans,
        }
        answer = {"choices": [choice], "prompt_logprobs": None}
        if body["sampling_params"].get("prompt_logprobs") is not None:
            answer["prompt_logprobs"] = [None, *scored[1:]]
        return httpx.Response(200, json=answer)
