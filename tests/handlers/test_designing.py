"""From a document to a verdict: document.sampled, environment.proposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from schemas.events import (
    DocumentSampled,
    EnvironmentProposed,
    EnvironmentRetired,
    EnvironmentValidated,
    EpisodeCompleted,
)
from schemas.records import DesignRecord
from schemas.words import DesignFailure, RetireReason
from spade_daemon.log.state import Phase
from spade_daemon.memory.embedder import Embedder
from spade_daemon.memory.entry import Vector
from spade_daemon.method.curriculum import environment_id, play_seeds
from spade_daemon.policy.chat import ChatTokens
from spade_daemon.sandbox.sandbox import Sandbox
from spade_daemon.settings import Settings
from tests.handlers.scripted import HINT, ScriptedServer, fenced
from tests.handlers.world import World, opened
from tests.vetting.environments import GOOD, PROBE

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_document_is_answered_once(world: World) -> None:
    sampled = await world.sampled()
    proposed = await world.follows(sampled, EnvironmentProposed)
    data = proposed.event.data
    assert data.environment == environment_id(world.services.log.run, 0, 0)
    assert proposed.event.correlation == sampled.event.id
    assert (data.turn, data.document, data.failure) == (sampled.event.data.turn, "d", None)
    assert (await world.services.log.blobs.get(data.code or "")).decode().strip() == PROBE.strip()
    assert world.policy.count("design") == 1
    record = await world.services.log.blobs.get_record(DesignRecord, data.sample.blob)
    assert record.sample is not None and sum(record.sample.trained) == data.sample.sampled_tokens
    assert record.response == fenced(PROBE)


@pytest.mark.parametrize(
    "run_settings", [("designer.prompt=full", "designer.positives=4", "curriculum.replay_rate=0.0")], indirect=True
)
async def test_a_design_begun_twice_is_asked_for_in_the_same_words(world: World) -> None:
    """A crash between the reply and the event: the second try may not see another prompt, drawn examples included."""
    await world.react(world.started)
    sampled = await world.last(DocumentSampled)
    asked: list[str] = []

    def crash(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) == 1:
            raise RuntimeError("the process dies here")
        return fenced(PROBE)

    world.policy.script.design = crash
    with pytest.raises(RuntimeError, match="dies here"):
        await world.react(sampled)
    assert not await world.all(EnvironmentProposed)
    await world.follows(sampled, EnvironmentProposed)
    assert len(asked) == 2 and asked[0] == asked[1]
    assert asked[0].count("```python\n") == 4


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        ("I would rather not.", DesignFailure.NO_CODE),
        ("", DesignFailure.EMPTY),
        ("```python\nclass HalfEnv:\n", DesignFailure.UNTERMINATED),
        ("```python\nclass LongEnv:\n" + "    # and so on\n" * 1000, DesignFailure.CUT),
    ],
)
async def test_an_unparsable_design_is_recorded_and_retires(world: World, reply: str, failure: DesignFailure) -> None:
    world.policy.script.design = lambda _: reply
    proposed = await world.proposed()
    assert (proposed.event.data.failure, proposed.event.data.code) == (failure, None)
    retired = await world.follows(proposed, EnvironmentRetired)
    assert retired.event.data.reason is RetireReason.UNPARSABLE
    assert world.services.state.slots[0].phase is Phase.FREE
    assert [outcome.invalid for outcome in world.services.state.outcomes] == [failure]


@pytest.mark.parametrize("run_settings", [("vet.max_code_bytes=500",)], indirect=True)
async def test_a_design_that_is_too_large_is_not_kept(world: World) -> None:
    proposed = await world.proposed()
    assert (proposed.event.data.failure, proposed.event.data.code) == (DesignFailure.TOO_LARGE, None)


async def test_an_accepted_design_gets_a_hint_and_a_plan(world: World) -> None:
    proposed = await world.proposed()
    validated = await world.follows(proposed, EnvironmentValidated)
    data = validated.event.data
    assert data.accepted, data.checks[-1]
    assert (data.reason, data.hint) == (None, HINT)
    assert [check.name for check in data.checks][-2:] == ["novel", "hint"]
    assert data.plan is not None and data.plan.seeds == play_seeds(data.environment, 0, 2)
    assert data.walls == world.services.sandbox.walls and len(data.walls) >= 2
    assert data.embedding is not None
    assert world.services.state.slots[0].phase is Phase.PLAYING


async def test_a_rejected_design_says_why_and_retires(world: World) -> None:
    world.policy.script.design = lambda _: fenced(PROBE.replace("def solution", "def answer"))
    proposed = await world.proposed()
    validated = await world.follows(proposed, EnvironmentValidated)
    data = validated.event.data
    assert (data.accepted, data.reason, data.hint, data.plan) == (False, "runs", None, None)
    assert world.policy.count("hint") == 0
    retired = await world.follows(validated, EnvironmentRetired)
    assert retired.event.data.reason is RetireReason.REJECTED
    assert world.services.state.slots[0].phase is Phase.FREE
    assert not await world.all(EpisodeCompleted)
    assert await world.services.memory.get(data.environment) is None


async def test_a_copy_of_a_remembered_environment_is_rejected(world: World) -> None:
    first = await world.validated()
    await world.react(first)
    second = await world.validated(slot=1)
    assert second.event.data.reason == "not_copy"
    assert first.event.data.environment in second.event.data.checks[-1].detail


async def test_what_means_the_same_is_no_new_idea(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other code, so no copy; but the embedder finds the same meaning."""
    vector = world.services.embedder.encode(["the one idea"])

    async def embed(texts: Sequence[str]) -> Vector:
        return np.repeat(vector, len(texts), axis=0)

    monkeypatch.setattr(world.services.embedder, "embed", embed)
    first = await world.validated()
    await world.react(first)
    world.policy.script.design = lambda _: fenced(GOOD)
    data = (await world.validated(slot=1)).event.data
    assert (data.accepted, data.reason, data.hint) == (False, "novel", None)
    assert data.similarity == pytest.approx(1.0, abs=1e-5)
    assert data.nearest == first.event.data.environment
    assert data.nearest in data.checks[-1].detail
    assert world.policy.count("hint") == 1


@pytest.mark.servers
async def test_the_real_embedder_tells_two_games_apart(
    run_settings: Settings, sandbox: Sandbox, chat: ChatTokens, policy: ScriptedServer
) -> None:
    embedder = Embedder.load(run_settings.memory.embedder)
    async with opened(run_settings, sandbox, chat, policy, embedder=embedder) as world:
        await world.react(await world.validated())
        world.policy.script.design = lambda _: fenced(GOOD)
        data = (await world.validated(slot=1)).event.data
        assert data.accepted, data.checks[-1]
        assert data.similarity is not None and 0.1 < data.similarity < run_settings.memory.max_similarity
    embedder.close()


async def test_a_leaky_hint_is_asked_for_again(world: World) -> None:
    proposed = await world.proposed()
    world.policy.script.hint = _answers(_everything("seal"), HINT)
    validated = await world.follows(proposed, EnvironmentValidated)
    assert (validated.event.data.accepted, validated.event.data.hint) == (True, HINT)
    assert validated.event.data.checks[-1].numbers["attempts"] == 2


async def test_a_design_whose_every_hint_leaks_is_rejected(world: World) -> None:
    proposed = await world.proposed()
    world.policy.script.hint = _answers(_everything("seal"), "", _everything("measure"))
    validated = await world.follows(proposed, EnvironmentValidated)
    data = validated.event.data
    assert (data.accepted, data.reason, data.hint, data.plan) == (False, "hint", None, None)
    assert data.checks[-1].detail.startswith("3 hints refused; the last: the hint holds the action 'measure")
    assert world.policy.count("hint") == 3


def _everything(verb: str) -> str:
    """A hint with every action of ``PROBE``, whatever the seed."""
    return "Try " + ", ".join(f"{verb} {pipe}" for pipe in range(1, 21))


def _answers(*texts: str) -> Callable[[str], str]:
    left = list(texts)
    return lambda _: left.pop(0)
