"""The hand-written environments. They run in this process: they are our own."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.words import Setting
from spade_daemon.envs.seeds import Seed, load_seeds
from spade_daemon.envs.support import spade_env
from spade_daemon.settings import GAME_SKILLS, TOOL_SKILLS

SEEDS = load_seeds()
GAMES = load_seeds(Setting.GAMES)


@pytest.fixture(autouse=True, scope="module")
def support() -> Iterator[None]:
    sys.modules["spade_env"] = spade_env
    yield
    del sys.modules["spade_env"]


def instance(seed: Seed, number: int) -> tuple[Any, str]:
    namespace: dict[str, Any] = {"__name__": "environment"}
    exec(compile(seed.code, seed.name, "exec"), namespace)  # noqa: S102
    (environment,) = (
        value for value in namespace.values() if isinstance(value, type) and value.__module__ == "environment"
    )
    env = environment()
    observation, info = env.reset(seed=number)
    assert info == {}
    return env, observation


every_seed = pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)


def test_a_seed_for_each_skill() -> None:
    assert {seed.skill for seed in GAMES} == set(GAME_SKILLS)
    assert tuple(seed.skill for seed in load_seeds(Setting.TOOL_USE)) == TOOL_SKILLS
    assert len({seed.environment for seed in SEEDS}) == len(SEEDS)


@every_seed
def test_solution_wins_in_at_least_two_steps(seed: Seed) -> None:
    for number in range(20):
        env, _ = instance(seed, number)
        actions = env.solution()
        ends = [env.step(action)[1:4] for action in actions]
        assert len(actions) >= 2
        assert ends == [(0.0, False, False)] * (len(actions) - 1) + [(1.0, True, False)]


@every_seed
def test_equal_seeds_are_equal_and_others_differ(seed: Seed) -> None:
    solutions = [tuple(instance(seed, number)[0].solution()) for number in range(20)]
    assert solutions == [tuple(instance(seed, number)[0].solution()) for number in range(20)]
    assert len(set(solutions)) > 5


@every_seed
def test_random_play_rarely_wins(seed: Seed) -> None:
    rng = random.Random(7)
    actions = sorted({action for number in range(30) for action in instance(seed, number)[0].solution()})
    wins = 0
    for number in range(100, 300):
        env, _ = instance(seed, number)
        while True:
            _, reward, terminated, truncated, _ = env.step(rng.choice(actions))
            if terminated or truncated:
                break
        wins += reward == 1.0
    assert wins / 200 < 0.12


@every_seed
@settings(max_examples=40)
@given(actions=st.lists(st.text(max_size=60) | st.sampled_from(["\\boxed{}", "\\boxed{take 9}", "٣"]), max_size=20))
def test_any_text_is_answered(seed: Seed, actions: list[str]) -> None:
    env, observation = instance(seed, 5)
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        assert type(observation) is str
        assert observation
        assert (type(reward), type(terminated), type(truncated), info) == (float, bool, bool, {})
        assert reward == 0.0
        if terminated or truncated:
            break


@pytest.mark.parametrize("seed", GAMES, ids=lambda seed: seed.name)
def test_games_are_short_and_always_remind_of_the_legal_actions(seed: Seed) -> None:
    assert 30 <= seed.code.count("\n") <= 55
    env, observation = instance(seed, 2)
    for action in ["junk", *env.solution()[:-1]]:
        assert len(observation) < 300
        assert "\\boxed{" in observation
        observation = env.step(action)[0]


@every_seed
def test_texts_fit_a_prompt_and_do_not_give_the_answer(seed: Seed) -> None:
    assert seed.description
    assert "\n" not in seed.description
    assert len(seed.hint.split()) < 60
    for number in range(5):
        env, _ = instance(seed, number)
        assert not any(action in seed.hint for action in env.solution())
