"""Careless code repeats itself in one world, and differs between worlds."""

from __future__ import annotations

import pytest

from spade_daemon.sandbox import Sandbox
from spade_daemon.sandbox.sandbox import world
from tests.sandbox.games import game

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARELESS = {
    "clock": "return repr(time.time())",
    "clock_ns": "return repr(time.time_ns())",
    "elapsed": "start = time.perf_counter()\nreturn repr(time.perf_counter() - start)",
    "day": "import datetime\nreturn datetime.datetime.now().isoformat() + str(datetime.date.today())",
    "calendar": "return time.strftime('%c') + time.ctime() + repr(time.gmtime())",
    "unseeded": "return repr(random.Random().random())",
    "reseeded": "random.seed()\nreturn repr(random.random())",
    "system": "return repr(random.SystemRandom().random())",
    "entropy": "import secrets, uuid\nreturn os.urandom(4).hex() + secrets.token_hex(4) + str(uuid.uuid4())",
    "pid": "return str(os.getpid())",
    "hash": "return str(hash('word'))",
    "set_order": "return str(list({'apple', 'pear', 'fig', 'plum', 'cherry', 'grape'}))",
    "address": "return str(id(object()) >> 12)",
}
CAREFUL = {
    "seeded": "return repr(random.Random(5).random())",
    "global": "return repr((random.random(), random.randint(0, 10 ** 9)))",
    "dictionary": "return str({word: 1 for word in 'several words in order'.split()})",
    "date": "import datetime\nreturn repr(datetime.datetime(2024, 1, 2) + datetime.timedelta(days=1))",
}


async def seen(sandbox: Sandbox, body: str, variation: int, seed: int = 3) -> str:
    async with sandbox.open(game(body), variation=variation) as worker:
        return (await worker.reset(seed)).observation


@pytest.mark.parametrize("name", CARELESS)
async def test_careless_code_repeats_and_is_found_out(sandbox: Sandbox, name: str) -> None:
    body = CARELESS[name]
    assert await seen(sandbox, body, 0) == await seen(sandbox, body, 0)
    assert len({await seen(sandbox, body, variation) for variation in range(4)}) > 1


@pytest.mark.parametrize("name", CAREFUL)
async def test_careful_code_is_the_same_in_all_worlds(sandbox: Sandbox, name: str) -> None:
    assert len({await seen(sandbox, CAREFUL[name], variation) for variation in range(4)}) == 1


async def test_the_seed_reaches_the_global_generator(sandbox: Sandbox) -> None:
    assert await seen(sandbox, CAREFUL["global"], 0, seed=1) != await seen(sandbox, CAREFUL["global"], 0, seed=2)
    assert await seen(sandbox, CARELESS["unseeded"], 0, seed=1) != await seen(sandbox, CARELESS["unseeded"], 0, seed=2)


async def test_sleep_passes_virtual_time_only(sandbox: Sandbox) -> None:
    body = "start = time.time()\ntime.sleep(100_000)\nreturn str(round(time.time() - start, -2))"
    assert await seen(sandbox, body, 0) == "100000.0"


async def test_dates_stay_dates(sandbox: Sandbox) -> None:
    body = """
import copy, datetime as d, pickle
now, made = d.datetime.now(), d.datetime.fromisoformat("2024-05-06T07:08:09")
checks = [
    isinstance(now, d.datetime), isinstance(now, d.date), isinstance(d.date.today(), d.date),
    not isinstance(d.date.today(), d.datetime), isinstance(made, d.datetime), issubclass(d.datetime, d.date),
    copy.deepcopy(now) == now, (now - made).total_seconds() < 0, repr(made) == "datetime.datetime(2024, 5, 6, 7, 8, 9)",
    d.datetime.strptime("2024", "%Y").year == 2024, d.datetime.combine(d.date(2024, 1, 1), d.time()).month == 1,
    copy.deepcopy(random.Random(4)).random() == random.Random(4).random(), isinstance(random.Random(), random.Random),
]
return str([place for place, good in enumerate(checks) if not good])
"""
    assert await seen(sandbox, body, 0) == "[]"


async def test_worlds_differ_in_everything() -> None:
    worlds = [world(variation) for variation in range(8)]
    for field in ("epoch", "tick_ns", "entropy", "pid"):
        assert len({getattr(each, field) for each in worlds}) == len(worlds)
