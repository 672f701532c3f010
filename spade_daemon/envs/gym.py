"""Any environment of the pool as a ``gymnasium.Env``: text in, text out, each episode in a fresh sandboxed process.

Importing this module registers ``spade/Environment-v0``, so both of these work::

    env = SpadeEnv(source)
    env = gymnasium.make("spade_daemon.envs.gym:spade/Environment-v0", source=source)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

import gymnasium
from gymnasium.spaces import Text

from schemas.words import Setting
from spade_daemon.envs.contract import action_of
from spade_daemon.envs.support import support_sources
from spade_daemon.errors import MissingPartError
from spade_daemon.sandbox.sandbox import Sandbox, Worker
from spade_daemon.settings import SandboxSettings

ENVIRONMENT_ID = "spade/Environment-v0"
MAX_ACTION_CHARS = 16_384
MAX_OBSERVATION_CHARS = 64_000
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))) + "\n"

T = TypeVar("T")


class UnicodeText(Text):
    """Any text up to ``max_length`` characters that UTF-8 can encode.

    Gymnasium's ``Text`` lists its characters one by one, which no list of Unicode can be; samples are drawn from
    printable ASCII, membership is judged by encoding.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=_PRINTABLE)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is such a text."""
        if not isinstance(x, str) or len(x) > self.max_length:
            return False
        try:
            x.encode()
        except UnicodeEncodeError:
            return False
        return True

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]  # as in Gymnasium: spaces are mutable


class SandboxThread:
    """A sandbox on an event loop of its own, for callers that are not asynchronous. Share one among many environments.

    Raises:
        SandboxRefused: this host cannot contain foreign code.
    """

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        # The fork server dies with the thread that started it, so this thread lives until close().
        self._thread = threading.Thread(target=self._loop.run_forever, name="spade-sandbox", daemon=True)
        self._thread.start()
        self.sandbox = Sandbox(settings or SandboxSettings(), support=support_sources(), variations=0)
        try:
            self.run(self.sandbox.__aenter__())
        except BaseException:
            self._stop()
            raise

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: Gymnasium copies the arguments of ``make``, and this one is there to be shared."""
        return self

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait. An interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the sandbox and the thread. Idempotent."""
        if not self._loop.is_closed():
            try:
                self.run(self.sandbox.__aexit__(None, None, None))
            finally:
                self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SpadeEnv(gymnasium.Env[str, str]):
    r"""One environment, given as source text.

    Actions may be whole replies of a language model: in games the last ``\boxed{...}`` counts. ``reset`` without a seed
    draws one from ``np_random``. Methods raise ``EpisodeFault`` when the environment breaks or breaks its contract.

    Args:
        source: Python text of the environment; it runs in the sandbox only.
        setting: how an action is read from a reply.
        sandbox: to be shared; without one, the environment starts its own and ends it in ``close``.
        render_mode: ``ansi`` to get the latest observation from ``render``.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        source: str,
        *,
        setting: Setting | str = Setting.GAMES,
        sandbox: SandboxThread | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = UnicodeText(MAX_OBSERVATION_CHARS)
        self.action_space = UnicodeText(MAX_ACTION_CHARS)
        self.render_mode = render_mode
        self.tools: tuple[Mapping[str, Any], ...] = ()
        """Function schemas of the tools, known after the first reset; empty for games."""
        self._source, self._setting = source, Setting(setting)
        self._own = None if sandbox else SandboxThread()
        self._thread = sandbox or self._own
        self._episode = AsyncExitStack()
        self._worker: Worker | None = None
        self._seen = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode in a fresh process. There are no options."""
        super().reset(seed=seed)
        instance = int(self.np_random.integers(1 << 31)) if seed is None else seed
        reset = self._running().run(self._begin(instance))
        self._seen = reset.observation
        return reset.observation, reset.info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Send one action, or the reply that holds it."""
        if self._worker is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        step = self._running().run(self._worker.step(action_of(action, self._setting)))
        self._seen = step.observation
        return step.observation, step.reward, step.terminated, step.truncated, step.info

    def render(self) -> str | None:
        """The latest observation in ``ansi`` mode."""
        return self._seen if self.render_mode == "ansi" else None

    def close(self) -> None:
        """End the episode's process, and the sandbox if it is our own. Idempotent."""
        if self._thread is not None:
            self._thread.run(self._end())
            self._thread = None
        if self._own is not None:
            self._own.close()
            self._own = None

    def _running(self) -> SandboxThread:
        if self._thread is None:
            raise MissingPartError("this environment is closed: make a new one")
        return self._thread

    async def _begin(self, seed: int) -> Any:
        await self._end()
        self._worker = await self._episode.enter_async_context(self._running().sandbox.open(self._source))
        self.tools = self._worker.loaded.tools
        return await self._worker.reset(seed)

    async def _end(self) -> None:
        self._worker = None
        await self._episode.aclose()


if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(id=ENVIRONMENT_ID, entry_point=f"{__name__}:SpadeEnv")
