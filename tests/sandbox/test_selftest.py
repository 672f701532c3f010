"""The self-test refuses a host or an installation whose walls do not hold."""

from __future__ import annotations

import pytest

from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox import Sandbox, SandboxRefused, selftest
from spade_daemon.sandbox.box import probes, walls
from spade_daemon.sandbox.selftest import CRITICAL, Findings, judge
from spade_daemon.sandbox.users import free_uid_base
from tests.sandbox.conftest import Sabotage
from tests.sandbox.games import GUESS, generous, play_honestly

EVERYTHING = frozenset(probes.PROBES)


def findings(**passed: set[str]) -> Findings:
    """Seccomp holds all unless said otherwise."""
    alone = {walls.SECCOMP: set()} | passed
    return Findings(EVERYTHING, {wall: frozenset(names) for wall, names in alone.items()})


def test_walls_in_force() -> None:
    assert judge(findings(landlock={"fork"}), 2) == (walls.SECCOMP, walls.LANDLOCK, walls.RLIMITS)


def test_one_wall_is_too_few_unless_the_operator_says_so() -> None:
    with pytest.raises(SandboxRefused, match=r"only 1 wall.*min_walls"):
        judge(findings(), 2)
    assert judge(findings(), 1) == (walls.SECCOMP, walls.RLIMITS)


@pytest.mark.parametrize("probe", CRITICAL)
def test_each_critical_probe_needs_its_walls(probe: str) -> None:
    with pytest.raises(SandboxRefused, match=probe):
        judge(findings(landlock={probe}), 2)
    judge(findings(landlock={probe}, namespaces=set()), 2)


def test_a_wall_that_holds_nothing_is_not_in_force() -> None:
    assert walls.LANDLOCK not in judge(findings(namespaces=set(), landlock=set(EVERYTHING)), 2)


def test_without_a_filter_nothing_runs() -> None:
    alone = {walls.LANDLOCK: frozenset[str](), walls.NAMESPACES: frozenset[str]()}
    with pytest.raises(SandboxRefused, match="filter"):
        judge(Findings(EVERYTHING, alone), 1)


def test_a_test_that_fails_without_walls_proves_nothing() -> None:
    with pytest.raises(SandboxRefused, match="read"):
        judge(Findings(EVERYTHING - {"read"}, {walls.SECCOMP: frozenset()}), 1)


def test_a_probe_this_host_holds_by_itself_is_not_counted() -> None:
    judge(Findings(EVERYTHING - {"write"}, {name: frozenset({"write"}) for name in (walls.SECCOMP, walls.LANDLOCK)}), 2)


async def test_the_probes_succeed_here_without_walls_and_the_filter_holds_all() -> None:
    measured = await selftest.measure_walls(free_uid_base(8))
    assert len(measured.open) >= 15
    assert not measured.alone[walls.SECCOMP] & measured.open


async def refusal(**settings: float) -> str:
    with pytest.raises(SandboxRefused) as caught:
        async with Sandbox(generous(**settings)):
            pytest.fail("it started")
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_an_untouched_copy_runs(sabotage: Sabotage) -> None:
    async with Sandbox(generous()) as sandbox:
        await play_honestly(sandbox)


async def test_a_missing_filter_is_noticed(sabotage: Sabotage) -> None:
    sabotage("walls.py", "kernel.install_filter(", "bool(")
    assert "does not hold" in await refusal()


async def test_a_filter_with_a_hole_is_noticed(sabotage: Sabotage) -> None:
    sabotage("bpf.py", "sched_getaffinity sched_yield", "sched_getaffinity sched_yield socket connect")
    sabotage("syscalls.py", '"read": 0,', '"read": 0, "socket": 41, "connect": 42,')
    assert "does not hold" in await refusal()


async def test_walls_that_are_not_put_up_in_workers_are_noticed(sabotage: Sabotage) -> None:
    sabotage("forkserver.py", "walls.raise_walls(plan, plan.names())", "pass")
    assert "does not hold" in await refusal()


async def test_a_wall_that_cannot_be_built_is_noticed(sabotage: Sabotage) -> None:
    sabotage("forkserver.py", "walls.raise_walls(plan, plan.names())", "raise OSError('no')")
    assert "does not finish" in await refusal()


async def test_probes_that_say_nothing_are_noticed(sabotage: Sabotage) -> None:
    sabotage("wallcheck.py", "probes.succeeding(target)", "[]")
    assert "proves nothing" in await refusal()


async def test_a_server_that_does_not_start_is_refused(sabotage: Sabotage) -> None:
    sabotage("forkserver.py", "preload.standard()", "raise OSError('no disk')")
    assert "no disk" in await refusal()


async def test_more_walls_than_the_host_has() -> None:
    assert "sandbox.min_walls" in await refusal(min_walls=9)


async def test_seccomp_alone_needs_the_operators_word(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "MEASURED", (walls.SECCOMP,))
    assert "min_walls" in await refusal(min_walls=2)
    async with Sandbox(generous()) as sandbox:
        assert sandbox.walls == (walls.SECCOMP, walls.RLIMITS)
        await play_honestly(sandbox)


async def test_a_later_failure_stops_new_episodes(sabotage: Sabotage) -> None:
    async with Sandbox(generous()) as sandbox:
        await sandbox.check()
        await play_honestly(sandbox)
        sabotage("wallcheck.py", "probes.succeeding(target)", "list(probes.PROBES)")
        with pytest.raises(SandboxRefused):
            await sandbox.check()
        with pytest.raises(SandboxRefused):
            async with sandbox.open(GUESS):
                pytest.fail("it opened")


async def test_a_broken_support_module_is_refused() -> None:
    with pytest.raises((SandboxRefused, EpisodeFault)):
        async with Sandbox(generous(), support={"broken": "1 / 0"}):
            pytest.fail("it started")
