"""One worker: honest play, whose fault each failure is, and what the daemon does about it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from schemas.words import StopReason
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox import Loaded, Sandbox
from spade_daemon.sandbox.server import Exit
from spade_daemon.sandbox.usage import Usage, was_starved
from spade_daemon.sandbox.worker import FREEZE_AFTER, MAX_STEPS, Worker, verdict
from tests.sandbox.games import GUESS, game, play_honestly

UNBUILDABLE = "class AEnv:\n  def __init__(self, n): pass\n  def reset(self): 0\n  def step(self): 0"

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_honest_game(sandbox: Sandbox) -> None:
    async with sandbox.open(GUESS) as worker:
        assert worker.loaded == Loaded("GuessEnv", "Find the hidden number.", (), 9)
        first = await worker.reset(7)
        assert (first.observation, first.info) == ("guess 0-99", {"digits": 2})
        wrong, right = await worker.solution()
        assert (await worker.step(wrong)).observation in ("higher", "lower")
        assert (await worker.step(right)).reward == 1.0
        assert await worker.reset(7) == first
        assert await worker.solution() == (wrong, right)


async def test_equal_seeds_are_equal_games_in_other_processes(sandbox: Sandbox) -> None:
    solutions = []
    for seed in (7, 7, 8):
        async with sandbox.open(GUESS) as worker:
            await worker.reset(seed)
            solutions.append(await worker.solution())
    assert solutions[0] == solutions[1] != solutions[2]


async def test_support_modules_are_there_with_and_without_import(sandbox: Sandbox) -> None:
    source = game("return Base.greeting + self.also.greeting", head="import spade_env") + "    also = spade_env.Base\n"
    async with sandbox.open(source) as worker:
        assert (await worker.reset(1)).observation == "hellohello"


async def test_an_exception_is_a_crash_with_its_line(sandbox: Sandbox) -> None:
    async with sandbox.open(GUESS) as worker:
        await worker.reset(7)
        with pytest.raises(EpisodeFault, match=r"step raised ValueError: invalid literal .* \(line 14\)") as caught:
            await worker.step("many")
        assert caught.value.stop is StopReason.ENVIRONMENT_CRASH
        assert (await worker.step("500")).observation == "lower"


@pytest.mark.parametrize(
    ("body", "stop"),
    [
        ("return None", StopReason.ENVIRONMENT_INVALID),
        ("return 'x' * 64_001", StopReason.ENVIRONMENT_INVALID),
        ("return chr(0xd800)", StopReason.ENVIRONMENT_INVALID),
        ("return [] + 1", StopReason.ENVIRONMENT_CRASH),
    ],
)
async def test_bad_observations(sandbox: Sandbox, body: str, stop: StopReason) -> None:
    async with sandbox.open(game(body)) as worker:
        with pytest.raises(EpisodeFault) as caught:
            await worker.reset(1)
    assert caught.value.stop is stop


@pytest.mark.parametrize(
    "result",
    [
        "None",
        "('x', 0.0, False, False)",
        "['x', 0.0, False, False, {}]",
        "('x', True, False, False, {})",
        "('x', float('nan'), False, False, {})",
        "('x', 10.5, False, False, {})",
        "('x', 10 ** 400, False, False, {})",
        "('x', '1', False, False, {})",
        "('x', 0.0, 0, False, {})",
        "('x', 0.0, False, None, {})",
        "('x', 0.0, False, False, None)",
        "('x', 0.0, False, False, {'a': 'x' * 16_001})",
        "(b'x', 0.0, False, False, {})",
    ],
)
async def test_bad_steps_are_invalid(sandbox: Sandbox, result: str) -> None:
    source = f"class AEnv:\n  def reset(self, seed=None): return 'x', {{}}\n  def step(self, action): return {result}\n"
    async with sandbox.open(source) as worker:
        await worker.reset(1)
        with pytest.raises(EpisodeFault) as caught:
            await worker.step("a")
    assert caught.value.stop is StopReason.ENVIRONMENT_INVALID


async def test_info_keeps_what_json_can_carry(sandbox: Sandbox) -> None:
    info = "{'a': 1, 'b': object(), 3: 4, 'c': [float('inf'), (1, 'x')], 'd': 10 ** 400, 'e': chr(0xd800)}"
    source = f"class AEnv:\n  def reset(self, seed=None): return 'x', {info}\n  def step(self, action): pass\n"
    async with sandbox.open(source) as worker:
        assert (await worker.reset(1)).info == {"a": 1, "c": [None, [1, "x"]], "e": "?"}


@pytest.mark.parametrize(
    ("source", "stop"),
    [
        ("x = (", StopReason.ENVIRONMENT_CRASH),
        ("x = 1 / 0", StopReason.ENVIRONMENT_CRASH),
        ("import numpy", StopReason.ENVIRONMENT_CRASH),
        ("x = '\\0'; class A: pass\0", StopReason.ENVIRONMENT_CRASH),
        ("", StopReason.ENVIRONMENT_INVALID),
        ("class Game: pass", StopReason.ENVIRONMENT_INVALID),
        ("class GameEnv: pass", StopReason.ENVIRONMENT_INVALID),
        (UNBUILDABLE, StopReason.ENVIRONMENT_INVALID),
    ],
)
async def test_sources_that_do_not_load(sandbox: Sandbox, source: str, stop: StopReason) -> None:
    with pytest.raises(EpisodeFault) as caught:
        async with sandbox.open(source):
            pytest.fail("it loaded")
    assert caught.value.stop is stop


@pytest.mark.parametrize("solution", ["", "    def solution(self): return 3\n", "    def solution(self): return [1]\n"])
async def test_a_missing_or_wrong_solution(sandbox: Sandbox, solution: str) -> None:
    async with sandbox.open(game("return 'x'") + solution) as worker:
        await worker.reset(1)
        with pytest.raises(EpisodeFault) as caught:
            await worker.solution()
        assert caught.value.stop is StopReason.ENVIRONMENT_INVALID
        assert (await worker.step("a")).observation == "played"


async def test_a_fatal_fault_stays(impatient: Sandbox) -> None:
    async with impatient.open(game("while True: pass")) as worker:
        for _ in range(2):
            with pytest.raises(EpisodeFault) as caught:
                await worker.reset(1)
            assert caught.value.stop in (StopReason.ENVIRONMENT_HANG, StopReason.STARVED)
    await play_honestly(impatient)


async def test_cpu_limit_of_an_episode(sandbox: Sandbox) -> None:
    settings = sandbox._settings.model_copy(update={"cpu_seconds": 1.0})
    async with Sandbox(settings) as frugal, frugal.open(game("while True: pass")) as worker:
        with pytest.raises(EpisodeFault, match="CPU") as caught:
            await worker.reset(1)
    assert caught.value.stop is StopReason.ENVIRONMENT_HANG


async def test_bytes_between_requests_kill(sandbox: Sandbox) -> None:
    source = game("return 'x'") + (
        "\nclass LateEnv(AttackEnv):\n"
        "    def step(self, action):\n"
        "        import box.runner as runner\n"
        "        send = runner.send\n"
        "        def twice(descriptor, reply):\n"
        "            send(descriptor, reply)\n"
        "            send(descriptor, reply)\n"
        "        runner.send = twice\n"
        "        return 'x', 0.0, False, False, {}\n"
    )
    async with sandbox.open(source) as worker:
        await worker.reset(1)
        await worker.step("a")
        await asyncio.sleep(0.5)
        with pytest.raises(EpisodeFault, match="nobody") as caught:
            await worker.step("a")
    assert caught.value.stop is StopReason.ENVIRONMENT_INVALID


async def test_a_worker_at_rest_is_stopped_and_goes_on(sandbox: Sandbox) -> None:
    async with sandbox.open(GUESS) as worker:
        await worker.reset(7)
        await asyncio.sleep(FREEZE_AFTER + 0.3)
        assert worker._frozen
        before = worker._meter.read()
        await asyncio.sleep(0.2)
        assert worker._meter.read() == before
        assert (await worker.step("500")).observation == "lower"


async def test_steps_are_limited(sandbox: Sandbox) -> None:
    async with sandbox.open(game("return 'x'")) as worker:
        await worker.reset(1)
        for _ in range(MAX_STEPS):
            await worker.step("a")
        with pytest.raises(EpisodeFault) as caught:
            await worker.step("a")
        assert caught.value.stop is StopReason.TURN_LIMIT


async def test_concurrent_calls_wait_for_each_other(sandbox: Sandbox) -> None:
    async with sandbox.open(GUESS) as worker:
        await worker.reset(7)
        steps = await asyncio.gather(*(worker.step("500") for _ in range(20)))
    assert {step.observation for step in steps} == {"lower"}


async def test_a_cancelled_call_ends_the_worker(sandbox: Sandbox) -> None:
    async with sandbox.open(game("while True: pass")) as worker:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await worker.reset(1)
        with pytest.raises(EpisodeFault) as caught:
            await worker.reset(1)
        assert caught.value.stop is StopReason.DEADLINE
    await play_honestly(sandbox)


async def test_nothing_is_left_in_the_next_process(sandbox: Sandbox) -> None:
    source = game("import builtins\nbuiltins.seen = getattr(builtins, 'seen', 0) + 1\nreturn str(builtins.seen)")
    for _ in range(2):
        async with sandbox.open(source) as worker:
            assert (await worker.reset(1)).observation == "1"


async def test_a_closed_worker_says_so(sandbox: Sandbox) -> None:
    async with sandbox.open(GUESS) as worker:
        pass
    with pytest.raises(EpisodeFault, match="closed"):
        await worker.reset(1)


def _exited(code: int) -> Exit:
    return Exit(code << 8, 0.0)


@pytest.mark.parametrize(
    ("ended", "stop"),
    [
        (None, StopReason.SANDBOX_LOST),
        (_exited(70), StopReason.SANDBOX_LOST),
        (_exited(0), StopReason.ENVIRONMENT_CRASH),
        (Exit(signal.SIGSEGV, 0.1), StopReason.ENVIRONMENT_CRASH),
        (Exit(signal.SIGKILL, 0.1), StopReason.ENVIRONMENT_CRASH),
        (Exit(signal.SIGKILL, 20.5), StopReason.ENVIRONMENT_HANG),
        (Exit(signal.SIGXCPU, 19.9), StopReason.ENVIRONMENT_HANG),
    ],
)
async def test_verdict_on_an_end(ended: Exit | None, stop: StopReason) -> None:
    assert verdict(ended, 20.0)[0] is stop


@pytest.mark.parametrize(
    ("running", "waiting", "starved"),
    [(0.0, 0.0, False), (0.1, 4.8, True), (1.5, 3.5, False), (5.0, 0.0, False), (0.1, 1.0, False)],
)
async def test_starved_or_hanging(running: float, waiting: float, starved: bool) -> None:
    before = Usage(10.0, 20.0)
    after = Usage(before.running + running, before.waiting + waiting)
    assert was_starved(before, after, 5.0) is starved
    assert not was_starved(None, after, 5.0)
    assert not was_starved(before, None, 5.0)


async def test_workers_have_users_of_their_own(sandbox: Sandbox) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give each worker its own user")

    async def user(worker: Worker) -> str:
        return (await worker.reset(1)).observation

    source = game("return f'{os.getuid()} {os.geteuid()} {os.getgid()}'")
    async with sandbox.open(source) as one, sandbox.open(source) as other:
        first, second = await user(one), await user(other)
    assert len(set(first.split())) == 1
    assert int(first.split()[0]) >= 1_900_000_000
    assert first != second
