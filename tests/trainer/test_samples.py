"""Tokens reach the trainer exactly as they were sampled, and every one of them exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import DesignRecord, EpisodeRecord, SampleRef, TokenSample
from schemas.words import Arm, Role
from spade_daemon.errors import LogError
from spade_daemon.trainer.batch import BatchPlan, Design, Group, Play
from spade_daemon.trainer.packing import collate, pack
from spade_daemon.trainer.samples import TrainingSample, fetch_samples, token_counts, training_sample

ENVIRONMENT = "e-00000000000a"


def reference(blob: str) -> SampleRef:
    return SampleRef(blob=blob * 64, prompt_tokens=1, sampled_tokens=2, version_min=0, version_max=0, temperature=1.0)


def tokens(*trained: bool, start: int = 10, temperature: float = 1.0) -> TokenSample:
    return TokenSample(
        ids=tuple(range(start, start + len(trained))),
        trained=trained,
        logprobs=tuple(-0.1 * (at + 1) if t else 0.0 for at, t in enumerate(trained)),
        version_min=0,
        version_max=0,
        temperature=temperature,
    )


def episode(*samples: TokenSample, play: int = 0, environment: str = ENVIRONMENT) -> EpisodeRecord:
    return EpisodeRecord(
        environment=environment,
        round=0,
        arm=Arm.PLAIN,
        play=play,
        seed=0,
        hint=None,
        turns=(),
        final_observation="",
        samples=samples,
    )


def design(sample: TokenSample | None) -> DesignRecord:
    return DesignRecord(environment=ENVIRONMENT, prompt=(), response="", sample=sample)


class Stored:
    """Blobs in memory."""

    def __init__(self, **records: Any) -> None:
        self.records = {name * 64: record for name, record in records.items()}

    async def get_record(self, cls: type[Any], name: str) -> Any:
        record = self.records[name]
        assert isinstance(record, cls)
        return record


def plan(*plays: Play, designs: tuple[Design, ...] = ()) -> BatchPlan:
    return BatchPlan(1, 9, (Group(3, ENVIRONMENT, 0, plays),), designs, {})


async def test_samples_of_a_batch() -> None:
    blobs = Stored(
        a=episode(tokens(False, True), tokens(False, True, True, start=50)),
        b=episode(tokens(False, False), play=1),
        c=design(tokens(False, True, temperature=0.7)),
        d=design(None),
    )
    made = plan(
        Play(0, reference("a"), 0.5),
        Play(1, reference("b"), -0.5),
        designs=(
            Design(4, ENVIRONMENT, "logic", reference("c"), 0.4, 0.2),
            Design(5, ENVIRONMENT, "logic", reference("d"), 0.0, -0.2),
        ),
    )
    samples = await fetch_samples(made, blobs)
    assert [(s.role, s.advantage, s.ids[0], s.temperature) for s in samples] == [
        (Role.AGENT, 0.5, 10, 1.0),
        (Role.AGENT, 0.5, 50, 1.0),
        (Role.DESIGNER, 0.2, 10, 0.7),
    ]
    assert token_counts(samples) == {Role.AGENT: 3, Role.DESIGNER: 1}


@pytest.mark.parametrize("record", [episode(play=1), episode(environment="e-00000000000b")])
async def test_a_blob_of_another_episode_is_refused(record: EpisodeRecord) -> None:
    with pytest.raises(LogError, match="damaged"):
        await fetch_samples(plan(Play(0, reference("a"), 0.5)), Stored(a=record))


@st.composite
def sequences(draw: st.DrawFn) -> TrainingSample:
    ids = tuple(draw(st.lists(st.integers(1, 99), min_size=2, max_size=20)))
    trained = tuple(draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))))
    return TrainingSample(
        ids=ids,
        trained=trained,
        sampler=tuple(-float(i) if t else 0.0 for i, t in zip(ids, trained, strict=True)),
        advantage=draw(st.sampled_from((-1.0, 0.5, 2.0))),
        role=draw(st.sampled_from(list(Role))),
        temperature=draw(st.sampled_from((0.5, 1.0))),
        version_min=0,
    )


@given(st.lists(sequences(), max_size=12), st.integers(1, 64))
def test_packing_keeps_every_sample_once_and_the_budget(samples: list[TrainingSample], budget: int) -> None:
    packed = pack(samples, budget)
    assert sorted((s for group in packed for s in group), key=repr) == sorted(samples, key=repr)
    assert packed == pack(samples, budget)
    for group in packed:
        assert group
        assert len(group) == 1 or max(len(s.ids) for s in group) * len(group) <= budget
    lengths = [len(s.ids) for group in packed for s in group]
    assert lengths == sorted(lengths, reverse=True)


@given(st.lists(sequences(), min_size=1, max_size=5))
def test_collation_predicts_each_trained_token_from_the_one_before(samples: list[TrainingSample]) -> None:
    micro = collate(samples)
    expected = [
        (row, at - 1, sample.ids[at], sample.sampler[at], sample.advantage, sample.temperature, sample.role)
        for row, sample in enumerate(samples)
        for at in range(1, len(sample.ids))
        if sample.trained[at]
    ]
    found = [
        (row, column, target, sampler, advantage, temperature, Role.DESIGNER if designer else Role.AGENT)
        for row, column, target, sampler, advantage, temperature, designer in zip(
            micro.rows.tolist(),
            micro.columns.tolist(),
            micro.targets.tolist(),
            micro.sampler.tolist(),
            micro.advantages.tolist(),
            micro.temperatures.tolist(),
            micro.designer.tolist(),
            strict=True,
        )
    ]
    assert found == expected
    for row, sample in enumerate(samples):
        assert micro.ids[row, : len(sample.ids)].tolist() == list(sample.ids)


def test_the_first_token_has_no_loss() -> None:
    sample = training_sample(tokens(True, True), 1.0, Role.AGENT)
    assert sample.trained_tokens == 1
    assert collate([sample]).columns.tolist() == [0]
