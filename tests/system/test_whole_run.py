"""The promises of the README, on real processes: nats-server, vLLM, daemon and trainer under supervisord."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.events import EnvironmentSeeded
from schemas.words import Setting
from spade_daemon.log.state import State
from tests.system.run import Run

COIN = '''
class CoinEnv:
    """Answer anything; the answer's letters decide."""

    max_turns = 2

    def reset(self, seed=None):
        self.seed = seed or 0
        return "Answer with one word in \\\\boxed{}.", {}

    def step(self, action):
        return "Done.", float((sum(map(ord, action)) + self.seed) % 2), True, False, {}
'''
ENVIRONMENT = "e-c0ffee000000"
MODEL = "smollm2-135m"


async def seed_coin(run: Run) -> None:
    """Remember an environment whose returns vary, so that groups have a signal whatever the model says."""
    log = await run.open_log()
    await log.join_epoch(None, 300)
    code = await log.blobs.put(COIN.encode())
    await log.append(
        EnvironmentSeeded(
            environment=ENVIRONMENT,
            name="coin",
            setting=Setting.GAMES,
            skill="Optimization",
            description="Answer anything.",
            code=code,
            hint="Use a short word.",
        )
    )
    await log.close()


@pytest.mark.servers
@pytest.mark.timeout(1200)
async def test_a_run_trains_swaps_survives_kills_and_goes_on(tmp_path: Path) -> None:
    run = Run(
        tmp_path / "h",
        f"model.name={MODEL}",
        "agent.max_tokens_per_turn=48",
        "agent.plays=4",
        "curriculum.replay_rate=0.9",
        "trainer.keep_checkpoints=2",
        "trainer.min_free_gb=0",
        "policy.kv_cache_mb=256",
    )
    run.up()
    try:
        await seed_coin(run)
        first = await run.until(lambda state: serves(state, 1), 600)
        assert first.trained_groups >= 1
        for process in ("daemon", "trainer", "policy", "nats"):
            run.kill(process)
        again = await run.until(lambda state: serves(state, first.version + 1), 600)
        assert again.unexpected == 0 and "event.dead" not in again.counts
        answer = run.json("replay")
        assert answer["agrees"] is True
        status = run.json("status")
        assert {process["name"] for process in status["processes"]} == {"nats", "policy", "daemon", "trainer"}
        assert run.interrupt() == 0, run.tail()
        offline = run.json("replay")
        assert offline["live"] is None and offline["sequence"] >= answer["sequence"]
        run.up()
        later = await run.until(lambda state: state.epoch == 2 and serves(state, again.version), 600)
        assert later.version >= again.version
        assert run.interrupt() == 0, run.tail()
    finally:
        run.close()


def serves(state: State, version: int) -> bool:
    """Whether a checkpoint of at least ``version`` was published and is served."""
    return state.version >= version and any(served >= version for served in state.serving.values())
