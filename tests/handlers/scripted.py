"""A policy that says what a test wants, behind the real client: real HTTP routes, real token bookkeeping."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import httpx
import numpy as np

from spade_daemon.memory.entry import Vector
from spade_daemon.policy.chat import ChatTokens
from tests.policy.fake_server import FakeServer
from tests.vetting.environments import PROBE

Reply = Callable[[str], str | Awaitable[str]]
"""From the prompt in words to what the policy says."""
KINDS = {
    "Here is the source code of a": "hint",
    "You are playing a text game": "act",
    "You play text games": "act",
    "You carry out instructions": "act",
    "You write small": "design",
    "You design interactive": "design",
}
"""How each of our prompts begins, and what it asks for."""
HINT = "Measure in the middle of what is left, then seal the only pipe that can leak."
DIMENSIONS = 16


def fenced(code: str) -> str:
    """A designer's reply with this code."""
    return f"A game of finding out.\n```python\n{code.strip()}\n```"


def bisect(prompt: str) -> str:
    """Win ``PROBE``: measure the middle of what is left, and seal what is certain."""
    low, high = 1, 20
    for place, said in re.findall(r"\\boxed\{measure (\d+)\}.*?Pressure is (low|normal)", prompt, re.DOTALL):
        low, high = (low, int(place)) if said == "low" else (int(place) + 1, high)
    return f"\\boxed{{seal {low}}}" if low == high else f"\\boxed{{measure {(low + high) // 2}}}"


def needs_the_hint(prompt: str) -> str:
    """An agent that wins ``PROBE`` with a hint and loses it in one turn without."""
    return bisect(prompt) if "HINT:" in prompt else "\\boxed{seal 99}"


def loses_once() -> Reply:
    """An agent that loses the first plain episode of ``PROBE`` and wins all others: a group with a signal."""
    losses = ["\\boxed{seal 99}"]
    return lambda prompt: losses.pop() if losses and "HINT:" not in prompt else bisect(prompt)


@dataclass
class Script:
    """What the policy says in each of its roles."""

    design: Reply = lambda _: fenced(PROBE)
    hint: Reply = lambda _: HINT
    act: Reply = needs_the_hint


@dataclass
class ScriptedServer(FakeServer):
    """Answers generations by a script, a token a byte, cut at ``max_tokens`` as a real server does."""

    version: str = "v000000"
    chat: ChatTokens | None = None
    script: Script = field(default_factory=Script)
    room: int | None = None
    """Most tokens of a reply, whatever is asked for."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(kind, prompt) of every generation."""

    def count(self, kind: str) -> int:
        """How often the policy was asked for ``kind``."""
        return sum(asked == kind for asked, _ in self.asked)

    async def _generate(self, body: dict[str, Any]) -> httpx.Response:
        assert self.chat is not None
        await self._resumed()
        if body["sampling_params"].get("prompt_logprobs") is not None:
            return self._reply(body, [0], self._span(1), "length")
        prompt = self.chat.decode(body["token_ids"])
        kind = next(kind for beginning, kind in KINDS.items() if beginning in prompt)
        self.asked.append((kind, prompt))
        said = getattr(self.script, kind)(prompt)
        text = await said if inspect.isawaitable(said) else said
        ids = [*self.chat.encode(text), self.chat.end]
        room = body["sampling_params"]["max_tokens"] if self.room is None else self.room
        kept = ids[:room]
        return self._reply(body, kept, self._span(len(kept)), "stop" if len(kept) == len(ids) else "length")

    def _span(self, length: int) -> list[dict[str, Any]]:
        return [{"version": self.version, "start": 0, "end": length}]


class HashEmbedder:
    """Another direction for another text, and the same for the same: what the memory's tests of meaning do not need."""

    async def embed(self, texts: Sequence[str]) -> Vector:
        return self.encode(texts)

    async def dimensions(self) -> int:
        return DIMENSIONS

    def encode(self, texts: Sequence[str]) -> Vector:
        return np.array([_direction(text) for text in texts], dtype=np.float32).reshape(-1, DIMENSIONS)

    def close(self) -> None:
        """Nothing is open."""


def _direction(text: str) -> Vector:
    seed = int.from_bytes(sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)
    return vector / np.linalg.norm(vector)
