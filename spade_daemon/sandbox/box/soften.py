"""A world that repeats itself: a virtual clock, seeded entropy and a constant process id.

Careless code (``time.time()``, ``Random()``, ``uuid4()``) becomes repeatable in the episode's seed. This is no wall:
code that asks the kernel directly gets around it, and replay under varied worlds is what finds that out.
"""

from __future__ import annotations

import datetime
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

NANOSECONDS = 10**9
RealDate: TypeAlias = datetime.date
RealDateTime: TypeAlias = datetime.datetime


@dataclass(frozen=True, slots=True)
class World:
    """What careless code would see of its surroundings."""

    epoch: int
    """Seconds since 1970 at which the virtual clock starts."""
    tick_ns: int
    """How far every look at the clock moves it."""
    entropy: int
    """Seed of everything that is meant to be unpredictable."""
    pid: int


class Clock:
    """Moves only when it is looked at or slept on."""

    def __init__(self, world: World) -> None:
        self._start = world.epoch * NANOSECONDS
        self._tick = world.tick_ns
        self._passed = 0

    def passed(self) -> int:
        """Nanoseconds since the start, one tick later than at the last look."""
        self._passed += self._tick
        return self._passed

    def now(self) -> int:
        """Nanoseconds since 1970."""
        return self._start + self.passed()

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass at once."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._passed += int(seconds * NANOSECONDS)


class Entropy:
    """A seeded stream in place of the kernel's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stream = random.Random()
        self.reseed(0)

    def reseed(self, seed: int) -> None:
        """Start the stream again for an episode."""
        self._stream.seed(f"{self._world.entropy}/{seed}")

    def octets(self, count: int) -> bytes:
        """``count`` bytes."""
        return self._stream.randbytes(count)

    def bits(self, count: int) -> int:
        """A non-negative integer of at most ``count`` bits."""
        return self._stream.getrandbits(count)

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return self._stream.random()


def install(world: World) -> Callable[[int], None]:
    """Replace clock, entropy and process id of this process.

    Returns:
        A function that seeds everything random for an episode.
    """
    clock, entropy = Clock(world), Entropy(world)
    _soften_time(clock)
    _soften_dates(clock)
    _soften_entropy(entropy)
    seed_module = random.seed
    vars(os).update(getpid=lambda: world.pid, getppid=lambda: world.pid - 1)

    def reseed(seed: int) -> None:
        entropy.reseed(seed)
        seed_module(seed)

    return reseed


def _soften_time(clock: Clock) -> None:
    # Through the module's namespace: the replacements have other types than the originals, on purpose.
    module = vars(time)
    module.update(time=lambda: clock.now() / NANOSECONDS, time_ns=clock.now, sleep=clock.sleep)
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        module[name] = lambda: clock.passed() / NANOSECONDS
        module[f"{name}_ns"] = clock.passed
    for name in ("localtime", "gmtime", "ctime"):
        module[name] = _with_default_moment(module[name], clock)
    localtime, strftime, asctime = module["localtime"], time.strftime, time.asctime
    module["strftime"] = lambda form, moment=None: strftime(form, localtime() if moment is None else moment)
    module["asctime"] = lambda moment=None: asctime(localtime() if moment is None else moment)


def _with_default_moment(convert: Callable[[float], Any], clock: Clock) -> Callable[..., Any]:
    def converted(seconds: float | None = None) -> Any:
        return convert(clock.now() / NANOSECONDS if seconds is None else seconds)

    return converted


def _soften_dates(clock: Clock) -> None:
    class DateMeta(type):
        """Instances of the real class count as instances of its replacement."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, vars(cls).get("stands_for", ())) or super().__instancecheck__(instance)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, vars(cls).get("stands_for", ())) or super().__subclasscheck__(subclass)

    class SoftDate(RealDate, metaclass=DateMeta):
        stands_for = RealDate

        @classmethod
        def today(cls) -> SoftDate:
            return cls.fromtimestamp(clock.now() / NANOSECONDS)

        def __repr__(self) -> str:
            return f"datetime.{super().__repr__()}"

    class SoftDateTime(RealDateTime, metaclass=DateMeta):
        stands_for = RealDateTime

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> SoftDateTime:
            return cls.fromtimestamp(clock.now() / NANOSECONDS, tz)

        @classmethod
        def today(cls) -> SoftDateTime:
            return cls.fromtimestamp(clock.now() / NANOSECONDS)

        @classmethod
        def utcnow(cls) -> SoftDateTime:
            return cls.utcfromtimestamp(clock.now() / NANOSECONDS)

        def __repr__(self) -> str:
            return f"datetime.{super().__repr__()}"

    for soft, name in ((SoftDate, "date"), (SoftDateTime, "datetime")):
        soft.__name__ = soft.__qualname__ = name
        soft.__module__ = "datetime"
        vars(datetime)[name] = soft


def _soften_entropy(entropy: Entropy) -> None:
    class Random(random.Random):
        """Without a seed, takes one from the seeded stream instead of the kernel."""

        def __init__(self, x: Any = None) -> None:
            super().__init__(entropy.bits(64) if x is None else x)

        def seed(self, a: Any = None, version: int = 2) -> None:
            super().seed(entropy.bits(64) if a is None else a, version)

    Random.__qualname__, Random.__module__ = "Random", "random"
    system, module = random.SystemRandom, vars(random)
    for name, method in (
        ("random", lambda self: entropy.fraction()),
        ("getrandbits", lambda self, k: entropy.bits(k)),
        ("randbytes", lambda self, n: entropy.octets(n)),
    ):
        setattr(system, name, method)
    global_seed = random.seed
    module.update(
        Random=Random,
        _urandom=entropy.octets,
        seed=lambda a=None, version=2: global_seed(entropy.bits(64) if a is None else a, version),
    )
    vars(os).update(urandom=entropy.octets, getrandom=lambda size, flags=0: entropy.octets(size))
    vars(secrets).update(token_bytes=lambda nbytes=None: entropy.octets(32 if nbytes is None else nbytes))
    vars(uuid).update(
        uuid1=lambda node=None, clock_seq=None: uuid.UUID(bytes=entropy.octets(16), version=1),
        uuid4=lambda: uuid.UUID(bytes=entropy.octets(16), version=4),
    )
