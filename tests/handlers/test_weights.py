"""New weights into the policy servers: checkpoint.published, the start, and servers that were started anew."""

from __future__ import annotations

import shutil

import pytest
import torch

from handlers.weights import reconcile, serve_newest
from schemas.events import CheckpointPublished, SwapFailed, WeightsSwapped
from schemas.records import Canary
from spade_daemon.log.stored import Stored
from spade_daemon.policy.canary import canary_ids
from spade_daemon.policy.swap import SwapFailure
from tests.handlers.world import World
from tests.policy.helpers import write_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVER = "policy-1"


async def published(world: World, version: int = 1, canary: float | None = None) -> Stored[CheckpointPublished]:
    """A checkpoint on disk and its event; ``canary``: what the trainer says each canary token's log-probability is."""
    services = world.services
    path, digest = write_checkpoint(
        services.model, services.settings.run_home(), version, {"w": torch.full((2, 3), float(version))}
    )
    blob = None
    if canary is not None:
        ids = canary_ids(services.chat)
        blob = await services.log.blobs.put_record(Canary(ids=ids, logprobs=(canary,) * (len(ids) - 1)))
    return await world.append(
        CheckpointPublished(
            policy=version,
            parent=version - 1,
            path=str(path),
            manifest=digest,
            consumed_sequence=0,
            groups=(),
            designs=(),
            dropped={},
            metrics={},
            seconds=1.0,
            canary=blob,
        )
    )


async def test_a_checkpoint_is_swapped_in_once(world: World) -> None:
    checkpoint = await published(world, canary=-1.01)
    await world.react(checkpoint)
    swapped = await world.last(WeightsSwapped)
    data = swapped.event.data
    assert (data.policy, data.server) == (1, SERVER)
    assert data.canary_max_diff == pytest.approx(0.01)
    assert swapped.event.causation == checkpoint.event.id
    assert world.policy.version == "v000001" and world.policy.weights.endswith("v000001")
    assert dict(world.services.state.serving) == {SERVER: 1}
    calls = len(world.policy.calls)
    await world.adds_nothing(checkpoint)
    assert len(world.policy.calls) == calls


async def test_an_older_checkpoint_is_passed_over(world: World) -> None:
    first = await published(world)
    second = await published(world, 2)
    await world.adds_nothing(first)
    await world.react(second)
    assert [stored.event.data.policy for stored in await world.all(WeightsSwapped)] == [2]


async def test_a_refused_swap_is_recorded_and_raised(world: World) -> None:
    await world.react(await published(world))
    checkpoint = await published(world, 2)
    world.policy.swap_answers = [{"ok": False, "touched": False, "error": "shapes differ"}]
    with pytest.raises(SwapFailure, match="shapes differ"):
        await world.react(checkpoint)
    failed = await world.last(SwapFailed)
    assert (failed.event.data.stage, failed.event.data.serving, failed.event.data.policy) == ("reload", 1, 2)
    assert failed.event.causation == checkpoint.event.id
    assert "shapes differ" in world.services.state.incidents[-1].message
    assert dict(world.services.state.serving) == {SERVER: 1} and not world.policy.paused
    await world.react(checkpoint)
    assert (await world.last(WeightsSwapped)).event.data.policy == 2
    assert dict(world.services.state.serving) == {SERVER: 2}


async def test_weights_that_differ_from_the_trainers_are_taken_back(world: World) -> None:
    await world.react(await published(world))
    checkpoint = await published(world, 2, canary=-2.0)
    with pytest.raises(SwapFailure, match="canary"):
        await world.react(checkpoint)
    assert (await world.last(SwapFailed)).event.data.serving == 1
    assert world.policy.weights.endswith("v000001") and world.policy.version == "v000001"


async def test_a_server_goes_back_to_the_base_when_its_version_is_gone_from_disk(world: World) -> None:
    first = await published(world)
    await world.react(first)
    shutil.rmtree(first.event.data.path)
    with pytest.raises(SwapFailure):
        await world.react(await published(world, 2, canary=-2.0))
    assert (await world.last(SwapFailed)).event.data.serving == 0
    assert world.policy.weights == str(world.services.model)


async def test_a_start_names_the_base_of_a_fresh_server(world: World) -> None:
    world.policy.version = "default"
    await serve_newest(world.services, world.started)
    assert world.policy.version == "v000000"
    assert dict(world.services.state.serving) == {SERVER: 0}
    count = len(await world.all())
    await serve_newest(world.services, world.started)
    assert len(await world.all()) == count


async def test_a_start_finishes_a_swap_that_was_cut_off(world: World) -> None:
    """Published, and the server left paused by a daemon that died in the middle."""
    await published(world)
    world.policy.paused = True
    await serve_newest(world.services, world.started)
    assert (world.policy.version, world.policy.paused) == ("v000001", False)
    assert dict(world.services.state.serving) == {SERVER: 1}


async def test_a_restarted_server_is_brought_up_to_date_by_the_next_request(world: World) -> None:
    await world.react(await published(world))
    world.policy.version, world.policy.weights = "default", "base"
    world.services.policy._seats[0].version = None
    completion = await world.services.policy.generate(
        world.services.chat.encode("You write small"), max_tokens=4, temperature=1.0
    )
    assert {span.version for span in completion.spans} == {1}
    assert world.policy.weights.endswith("v000001")
    assert [stored.event.data.policy for stored in await world.all(WeightsSwapped)] == [1, 1]


async def test_a_server_that_cannot_be_reconciled_is_said_so(world: World) -> None:
    await published(world)
    world.policy.version = "default"
    world.policy.swap_answers = [{"ok": False, "touched": True, "error": "half loaded"}] * 2
    with pytest.raises(SwapFailure):
        await reconcile(world.services, world.services.policy.servers[0])
    failed = (await world.last(SwapFailed)).event.data
    assert (failed.policy, failed.serving) == (1, None)
    assert SERVER not in world.services.state.serving
