"""The gate against good and bad environments, in the real sandbox."""

from __future__ import annotations

from itertools import count

import pytest

from schemas.words import FAULT_OF, Fault, Setting, StopReason
from spade_daemon.envs.seeds import Seed, load_seeds
from spade_daemon.errors import EpisodeFault
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import VetSettings
from spade_daemon.vetting.gate import Verdict, vet
from spade_daemon.vetting.hints import hint_leak
from tests.vetting.environments import BAD, GOOD, PROBE, RENAMED, Bad

pytestmark = pytest.mark.asyncio(loop_scope="module")
SEEDS = (101, 102, 103, 104, 105)
ORDER = (
    "size",
    "loads",
    "runs",
    "seeded",
    "deterministic",
    "interactive",
    "solvable",
    "not_trivial",
    "not_copy",
)


async def judge(sandbox: Sandbox, source: str, setting: Setting = Setting.GAMES, **known: str) -> Verdict:
    ticks = count()
    return await vet(
        source,
        setting=setting,
        sandbox=sandbox,
        settings=VetSettings(),
        seeds=SEEDS,
        known=known,
        clock=lambda: float(next(ticks)),
    )


@pytest.mark.parametrize("seed", load_seeds(), ids=lambda seed: seed.name)
async def test_every_seed_passes_the_whole_gate(sandbox: Sandbox, seed: Seed) -> None:
    others = {other.environment: other.code for other in load_seeds() if other is not seed}
    verdict = await judge(sandbox, seed.code, seed.setting, **others)
    assert verdict.accepted, verdict.checks[-1]
    assert tuple(check.name for check in verdict.checks) == ORDER
    assert verdict.description == seed.description
    assert len(verdict.solution_actions) == len(verdict.first_observations) == len(SEEDS)
    assert bool(verdict.tools) == (seed.setting is Setting.TOOL_USE)
    for actions, observation in zip(verdict.solution_actions, verdict.first_observations, strict=True):
        assert hint_leak(seed.hint, actions, observation) is None


async def test_a_good_game_passes_and_each_check_is_timed(sandbox: Sandbox) -> None:
    verdict = await judge(sandbox, GOOD)
    assert verdict.accepted, verdict.checks[-1]
    assert verdict.reason is None
    assert all(check.passed and not check.detail and check.seconds == 1.0 for check in verdict.checks)
    numbers = {check.name: check.numbers for check in verdict.checks}
    assert numbers["solvable"] == {"min_steps": 2.0, "max_steps": 2.0}
    assert {"empty", "echo", "random", "memorised", "constant 0", "copy box"} <= set(numbers["not_trivial"])


async def test_a_game_of_finding_out_passes_though_one_action_wins_it(sandbox: Sandbox) -> None:
    verdict = await judge(sandbox, PROBE)
    assert verdict.accepted, verdict.checks[-1]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
async def test_a_bad_environment_is_rejected_by_the_right_check(sandbox: Sandbox, bad: Bad) -> None:
    verdict = await judge(sandbox, bad.source, bad.setting)
    last = verdict.checks[-1]
    assert not verdict.accepted
    assert (verdict.reason, last.name, last.passed) == (bad.check, bad.check, False), last
    assert bad.detail.casefold() in last.detail.casefold()
    assert "\n" not in last.detail
    assert all(check.passed for check in verdict.checks[:-1])


async def test_a_renamed_copy_is_named(sandbox: Sandbox) -> None:
    verdict = await judge(sandbox, RENAMED, other=load_seeds()[0].code, original=GOOD)
    assert verdict.reason == "not_copy"
    assert "original" in verdict.checks[-1].detail


async def test_the_verdict_repeats_itself(sandbox: Sandbox) -> None:
    assert await judge(sandbox, GOOD) == await judge(sandbox, GOOD)


async def test_a_failure_of_the_host_is_no_verdict(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise EpisodeFault(StopReason.SANDBOX_LOST, "the fork server is gone")

    assert FAULT_OF[StopReason.SANDBOX_LOST] is Fault.INFRASTRUCTURE
    monkeypatch.setattr(sandbox, "open", lost)
    with pytest.raises(EpisodeFault, match="fork server"):
        await judge(sandbox, GOOD)


async def test_one_seed_is_not_enough(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="two different seeds"):
        await vet(GOOD, setting=Setting.GAMES, sandbox=sandbox, settings=VetSettings(), seeds=(1, 1))
