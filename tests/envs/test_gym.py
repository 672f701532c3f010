"""The pool through Gymnasium's eyes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from schemas.words import Setting
from spade_daemon.envs.gym import ENVIRONMENT_ID, SandboxThread, SpadeEnv, UnicodeText
from spade_daemon.envs.seeds import Seed, load_seeds
from spade_daemon.errors import EpisodeFault, MissingPartError

GAME = load_seeds(Setting.GAMES)[4]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxThread]:
    thread = SandboxThread()
    yield thread
    thread.close()
    thread.close()


@pytest.mark.parametrize("seed", load_seeds(), ids=lambda seed: seed.name)
def test_every_seed_passes_gymnasiums_own_checker(sandbox: SandboxThread, seed: Seed) -> None:
    env = gymnasium.make(
        f"spade_daemon.envs.gym:{ENVIRONMENT_ID}", source=seed.code, setting=seed.setting, sandbox=sandbox
    ).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)
    assert isinstance(env, SpadeEnv)
    assert bool(env.tools) == (seed.setting is Setting.TOOL_USE)
    env.close()


def test_an_episode_can_be_won_with_whole_replies(sandbox: SandboxThread) -> None:
    env = SpadeEnv(GAME.code, sandbox=sandbox, render_mode="ansi")
    env.reset(seed=5)
    gold = {}
    for chest in range(1, 7):
        said = f"<think>\\boxed{{take 1}}</think> I look first: \\boxed{{look {chest}}}."
        observation, *_ = env.step(said)
        gold[chest] = int(observation.split("holds ")[1].split()[0])
    best = sorted(gold, key=lambda chest: -gold[chest])[:2]
    env.step(f"\\boxed{{take {best[0]}}}")
    observation, reward, terminated, truncated, _ = env.step(f"\\boxed{{take {best[1]}}}")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert env.render() == observation
    env.close()


def test_order_of_calls_is_kept(sandbox: SandboxThread) -> None:
    env = SpadeEnv(GAME.code, sandbox=sandbox)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("x")
    env.reset(seed=1)
    env.close()
    env.close()
    with pytest.raises(MissingPartError, match="closed"):
        env.reset(seed=1)


def test_a_broken_environment_raises_and_the_sandbox_lives_on(sandbox: SandboxThread) -> None:
    env = SpadeEnv("class XEnv:\n  def reset(self, seed=None): 1/0\n  def step(self, action): pass", sandbox=sandbox)
    for _ in range(2):
        with pytest.raises(EpisodeFault, match="ZeroDivisionError"):
            env.reset(seed=1)
    env.close()
    assert SpadeEnv(GAME.code, sandbox=sandbox).reset(seed=1)[0]


def test_without_a_sandbox_it_starts_and_ends_its_own() -> None:
    env = SpadeEnv(GAME.code)
    first = env.reset(seed=3)
    assert env.reset(seed=3) == first
    env.close()


@given(st.text(max_size=40))
def test_the_space_holds_all_of_unicode(text: str) -> None:
    assert UnicodeText(40).contains(text)


def test_the_space_refuses_what_cannot_be_sent() -> None:
    space = UnicodeText(5)
    assert not space.contains("\ud800")
    assert not space.contains("123456")
    assert not space.contains(5)
    assert space == UnicodeText(5) != UnicodeText(6)
    space.seed(3)
    assert all(space.contains(space.sample()) for _ in range(50))
