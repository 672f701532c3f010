"""What a handler may call: the machinery of one daemon, built once by ``app`` and handed to every reaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from spade_daemon.corpus.store import Corpus
from spade_daemon.log.log import Log
from spade_daemon.log.projection import Projection
from spade_daemon.log.state import State
from spade_daemon.memory.embedder import Embedder
from spade_daemon.memory.store import Memory
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.policy.client import Policy
from spade_daemon.policy.swap import Swapper
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """The machinery, open and ready."""

    settings: Settings
    log: Log
    projection: Projection
    corpus: Corpus
    memory: Memory
    embedder: Embedder
    sandbox: Sandbox
    model: Path
    """Directory of the base model: policy version 0."""
    chat: ChatTokens
    policy: Policy
    swapper: Swapper
    episodes: asyncio.Semaphore
    """Bounds the episodes in flight in this daemon."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a free slot chooses its next turn, so that two slots do not choose the same environment."""

    @property
    def state(self) -> State:
        """The fold of the log as far as this daemon has read."""
        return self.projection.state
