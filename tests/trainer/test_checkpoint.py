"""Files of a checkpoint, without training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from immutables import Map
from safetensors.torch import load_file

from spade_daemon.errors import CheckpointError, ConfigError
from spade_daemon.log.state import EMPTY
from spade_daemon.policy.checkpoint import checkpoint_directory
from spade_daemon.settings import Settings, load
from spade_daemon.trainer.checkpoint import read_leftover, remove_old, remove_partial
from spade_daemon.trainer.files import require_space, write_tensors
from spade_daemon.trainer.process import run_trainer


def configured(home: Path, **trainer: int) -> Settings:
    settings = load("test")
    return settings.model_copy(update={"home": home, "trainer": settings.trainer.model_copy(update=trainer)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_streamed_tensors_read_back(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"b": torch.randn(3, 5).T, "a": torch.randn(7), "c": torch.randn(1, 1)}
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    write_tensors(tmp_path / "x.safetensors", shapes, dtype, iter(tensors.items()))
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(found[name], value.to(dtype)), name


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([("a", torch.ones(2))], "missing"),
        ([("a", torch.ones(2)), ("b", torch.ones(3))], "not expected"),
        ([("b", torch.ones(2)), ("a", torch.ones(2))], "not expected"),
        ([("a", torch.tensor([1.0, float("nan")]))], "not finite"),
        ([("a", torch.ones(2)), ("b", torch.ones(2)), ("c", torch.ones(2))], "not expected"),
    ],
)
def test_other_tensors_are_refused(tmp_path: Path, tensors: list[tuple[str, torch.Tensor]], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        write_tensors(tmp_path / "x.safetensors", {"a": (2,), "b": (2,)}, torch.float32, tensors)


def test_too_little_disk_says_what_to_do(tmp_path: Path) -> None:
    require_space(tmp_path, 1, 0.0)
    with pytest.raises(CheckpointError, match=r"trainer\.min_free_gb"):
        require_space(tmp_path, 1 << 60, 0.0)


def test_retention_keeps_the_newest_and_what_is_served(tmp_path: Path) -> None:
    settings = configured(tmp_path, keep_checkpoints=3)
    for version in range(1, 9):
        (checkpoint_directory(settings.run_home(), version) / "trainer").mkdir(parents=True)
    published = Map(dict.fromkeys(range(1, 8), ""))
    state = replace(EMPTY, checkpoints=published, serving=Map({"a": 2, "b": 7}))
    assert remove_old(state, settings) == [1, 3, 4]
    left = sorted(path.name for path in (settings.run_home() / "checkpoints").iterdir())
    assert left == ["v000002", "v000005", "v000006", "v000007", "v000008"]
    assert remove_old(state, settings) == []


def test_half_written_directories_go_at_the_start(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    partial = settings.run_home() / "checkpoints" / ".tmp-v000003"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"x")
    remove_partial(settings)
    assert not partial.exists()


def test_an_incomplete_leftover_is_removed(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    directory = checkpoint_directory(settings.run_home(), 1)
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(b"x")
    assert read_leftover(settings, (1, 1, 10)) is None
    assert not directory.exists()
    assert read_leftover(settings, (1, 1, 10)) is None


async def test_several_processes_are_refused_rather_than_run_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trainer\.processes"):
        await run_trainer(configured(tmp_path, processes=2))
