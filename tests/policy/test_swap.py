"""The swap transaction against scripted faults: whatever happens, the end state is known or the server is restarted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from spade_daemon.errors import CheckpointError
from spade_daemon.policy.canary import max_difference
from spade_daemon.policy.checkpoint import open_checkpoint, read_manifest, verify
from spade_daemon.policy.server import Server, ServerError
from spade_daemon.policy.swap import SwapFailure, Swapper, Target
from tests.policy.fake_server import FakeServer
from tests.policy.helpers import write_checkpoint

PROMPT = (1, 2, 3)
GOOD = (-1.0, -1.0)


class Restarts:
    """Counts restarts and leaves the server as a fresh one."""

    def __init__(self, fake: FakeServer) -> None:
        self.fake, self.count = fake, 0

    async def __call__(self, server: Server) -> None:
        self.count += 1
        self.fake.version, self.fake.weights, self.fake.paused = "default", "base", False


class Stage:
    """A stand-in server at version 1 and a checkpoint of version 2."""

    def __init__(self, home: Path) -> None:
        base = home / "base"
        base.mkdir()
        (base / "config.json").write_text("{}")
        self.fake = FakeServer(version="v000001", weights=str(home / "checkpoints" / "v000001"))
        self.server = Server("http://s", request_timeout=2.0, admin_timeout=0.5, transport=self.fake.transport)
        self.restarts = Restarts(self.fake)
        self.swapper = Swapper(PROMPT, 0.05, self.restarts)
        one, two = (write_checkpoint(base, home, version, {"w": torch.ones(2, 3)}) for version in (1, 2))
        self.one = Target(1, one[0], one[1], GOOD)
        self.two = Target(2, two[0], two[1], GOOD)
        self.base = Target(0, base)

    async def fails(self, stage: str, serving: int | None) -> SwapFailure:
        with pytest.raises(SwapFailure) as caught:
            await self.swapper.swap(self.server, self.two, self.one)
        assert (caught.value.stage, caught.value.serving) == (stage, serving)
        return caught.value

    def serves(self, target: Target) -> bool:
        return not self.fake.paused and self.fake.weights == str(target.path)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_good_checkpoint_is_served(stage: Stage):
    result = await stage.swapper.swap(stage.server, stage.two, stage.one)
    assert (result.version, result.canary_max_diff) == (2, 0.0)
    assert 0 <= result.paused_seconds <= result.seconds
    assert stage.serves(stage.two)
    assert await stage.server.weight_version() == 2


async def test_without_a_canary_there_is_no_difference(stage: Stage):
    target = Target(2, stage.two.path, stage.two.manifest)
    assert (await stage.swapper.swap(stage.server, target, stage.one)).canary_max_diff is None


@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "manifest", "gone"])
async def test_a_damaged_checkpoint_is_refused_before_the_pause(stage: Stage, damage: str):
    file = stage.two.path / "model.safetensors"
    content = bytearray(file.read_bytes())
    match damage:
        case "truncated":
            file.write_bytes(content[:-4])
        case "changed":
            content[-1] ^= 1
            file.write_bytes(content)
        case "missing":
            file.unlink()
        case "manifest":
            manifest = stage.two.path / "manifest.json"
            manifest.write_text(manifest.read_text().replace('"epoch":1', '"epoch":2'))
        case "gone":
            stage.two.path.rename(stage.two.path.with_name("elsewhere"))
    await stage.fails("verify", 1)
    assert "/pause" not in stage.fake.calls
    assert stage.serves(stage.one)


async def test_weights_refused_by_the_worker_leave_the_old_ones_serving(stage: Stage):
    stage.fake.swap_answers = [{"ok": False, "touched": False, "error": "other shapes"}]
    failure = await stage.fails("reload", 1)
    assert "other shapes" in str(failure)
    assert stage.serves(stage.one)
    assert stage.restarts.count == 0


async def test_a_half_loaded_server_goes_back_before_it_is_resumed(stage: Stage):
    stage.fake.swap_answers = [{"ok": False, "touched": True, "error": "disk"}]
    await stage.fails("reload", 1)
    assert stage.serves(stage.one)
    assert stage.fake.version == "v000001"
    assert stage.fake.calls.count("/resume") == 1
    assert stage.restarts.count == 0


async def test_a_server_that_cannot_go_back_is_restarted_and_never_resumed(stage: Stage):
    stage.fake.swap_answers = [{"ok": False, "touched": True, "error": "disk"}] * 2
    await stage.fails("reload", None)
    assert stage.restarts.count == 1
    assert "/resume" not in stage.fake.calls


async def test_a_restart_that_fails_is_told(stage: Stage):
    async def fail(server: Server) -> None:
        raise ServerError(f"{server.url} does not come back")

    stage.swapper = Swapper(PROMPT, 0.05, fail)
    stage.fake.swap_answers = [{"ok": False, "touched": True, "error": "disk"}] * 2
    assert "does not come back" in str(await stage.fails("reload", None))
    assert stage.fake.paused


@pytest.mark.parametrize("offset", [0.5, -0.5, math.nan])
async def test_a_canary_that_differs_brings_the_old_weights_back(stage: Stage, offset: float):
    stage.fake.score_offsets = {str(stage.two.path): offset}
    await stage.fails("canary", 1)
    assert stage.serves(stage.one)
    assert await stage.server.weight_version() == 1


async def test_a_version_that_does_not_stick_is_noticed(stage: Stage):
    stage.fake.faults = [("/update_weight_version", 200, "{}")]
    await stage.fails("version", 1)
    assert stage.serves(stage.one)


@pytest.mark.parametrize("path", ["/pause", "/update_weight_version", "/resume"])
async def test_an_error_on_the_way_goes_back(stage: Stage, path: str):
    stage.fake.faults = [(path, 500, "oops")]
    await stage.fails(path.removeprefix("/").replace("update_weight_", ""), 1)
    assert stage.serves(stage.one)
    assert stage.fake.version == "v000001"


async def test_a_dead_worker_is_found_before_anything_changes(stage: Stage):
    stage.fake.hang = {"/collective_rpc"}
    await stage.fails("health", 1)
    assert "/pause" not in stage.fake.calls


async def test_a_sleeping_server_is_left_alone(stage: Stage):
    stage.fake.sleeping = True
    await stage.fails("health", 1)
    assert "/pause" not in stage.fake.calls


async def test_a_fresh_server_with_the_base_model_only_gets_its_name(stage: Stage):
    stage.fake.version, stage.fake.weights = "default", "base"
    assert await stage.swapper.reconcile(stage.server, stage.base) is None
    assert await stage.server.weight_version() == 0
    assert "/pause" not in stage.fake.calls


async def test_a_fresh_server_is_brought_to_the_wanted_version(stage: Stage):
    stage.fake.version, stage.fake.weights = "default", "base"
    result = await stage.swapper.reconcile(stage.server, stage.one)
    assert result is not None
    assert result.version == 1
    assert stage.serves(stage.one)


async def test_a_server_that_is_right_is_left_alone(stage: Stage):
    assert await stage.swapper.reconcile(stage.server, stage.one) is None
    assert "/pause" not in stage.fake.calls


async def test_a_swapper_that_died_in_the_middle_is_cleaned_up_after(stage: Stage):
    stage.fake.paused, stage.fake.weights = True, "mixture"
    await stage.swapper.reconcile(stage.server, stage.one)
    assert stage.serves(stage.one)


async def test_a_server_with_the_right_name_and_wrong_weights_is_found_out(stage: Stage):
    stage.fake.weights = "others"
    stage.fake.score_offsets = {"others": 1.0}
    result = await stage.swapper.reconcile(stage.server, stage.one)
    assert result is not None
    assert stage.serves(stage.one)


async def test_the_base_model_can_be_swapped_back_in(stage: Stage):
    result = await stage.swapper.swap(stage.server, stage.base, stage.one)
    assert result.version == 0
    assert stage.serves(stage.base)


def test_a_manifest_must_not_leave_its_directory(stage: Stage):
    manifest = read_manifest(stage.one.path)
    outside = manifest.files[0].model_copy(update={"name": "../x"})
    with pytest.raises(CheckpointError, match="outside"):
        verify(stage.one.path, manifest.model_copy(update={"files": (outside,)}), deep=False)


def test_a_checkpoint_of_another_version_is_refused(stage: Stage):
    assert stage.one.manifest is not None
    with pytest.raises(CheckpointError, match="holds version 1"):
        open_checkpoint(stage.one.path, 2, stage.one.manifest, deep=False)


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        ((-1.0, -2.0), (-1.5, -2.0), 0.5),
        ((-1.0,), (-1.0, -2.0), math.inf),
        ((), (), math.inf),
        ((math.nan,), (-1.0,), math.inf),
        ((-1.0, -1.0), (math.nan, -1.0), math.inf),
        ((-1.0, -1.0), (-1.0, math.nan), math.inf),
    ],
)
def test_differences_that_cannot_be_measured_are_infinite(
    expected: tuple[float, ...], found: tuple[float, ...], difference: float
):
    assert max_difference(expected, found) == difference
