"""Optimizer state on disk, without pickle: safetensors of each process, and a record that says what belongs together.

The state of ZeRO lies in flat partitions, so it fits only the stage, method and number of processes that wrote it; a
resume with others is refused rather than begun with a fresh optimizer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from schemas.base import Record
from schemas.records import Canary, FileDigest
from spade_daemon.errors import CheckpointError
from spade_daemon.policy.model_store import file_digest
from spade_daemon.settings import LoraSettings, Settings
from spade_daemon.trainer.engine import Engine, optimizer_steps
from spade_daemon.trainer.files import write_text
from spade_daemon.trainer.lora import adapter_tensors
from spade_daemon.trainer.model import gathered

FOLDER = "trainer"
"""Below a checkpoint directory; servers never look into it."""
STATE = "state.json"
ADAPTERS = "adapters.safetensors"


class Layout(Record):
    """What decides the shape of the stored tensors."""

    method: str
    rank: int | None
    layers: int | None
    dtype: str
    zero_stage: int
    processes: int


class TrainerState(Record):
    """``trainer/state.json``: written after the tensors that it names."""

    schema_version: int = 1
    version: int
    consumed_sequence: int
    optimizer_steps: int
    layout: Layout
    metrics: dict[str, float]
    seconds: float
    """What training and writing took: told when the checkpoint is published after a crash."""
    canary: Canary
    files: tuple[FileDigest, ...]


def layout_of(settings: Settings) -> Layout:
    """Layout under the settings."""
    trainer = settings.trainer
    lora: LoraSettings | None = trainer.lora if trainer.method == "lora" else None
    return Layout(
        method=trainer.method,
        rank=lora.rank if lora else None,
        layers=lora.layers if lora else None,
        dtype=settings.model.dtype,
        zero_stage=trainer.zero_stage,
        processes=torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1,
    )


def save_tensors(engine: Engine, directory: Path) -> None:
    """Write this process's optimizer state, and the adapters, into the folder ``directory``."""
    save_file(_optimizer_tensors(engine), directory / _shard())
    adapters = adapter_tensors(engine.policy)
    if adapters:
        with gathered(list(adapters.values())):
            save_file({name: value.detach().contiguous() for name, value in adapters.items()}, directory / ADAPTERS)


def save_state(directory: Path, state: TrainerState) -> None:
    """Write the record, with the digests of the tensors beside it."""
    files = tuple(file_digest(path) for path in sorted(directory.glob("*.safetensors")))
    write_text(directory / STATE, state.model_copy(update={"files": files}).model_dump_json(indent=1))


def read_state(checkpoint: Path, *, deep: bool) -> TrainerState:
    """The trainer's record in a checkpoint directory; its files are there in full, with ``deep`` to the digest.

    Raises:
        CheckpointError: one line with what is wrong.
    """
    folder = checkpoint / FOLDER
    try:
        state = TrainerState.model_validate_json((folder / STATE).read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it cannot be read"
        raise CheckpointError(f"{folder / STATE}: {reason}; restore the directory from a copy") from error
    for entry in state.files:
        file = folder / entry.name
        if not file.is_file() or file.stat().st_size != entry.size:
            raise CheckpointError(f"{file} is missing or cut: restore the checkpoint directory from a copy")
        if deep and file_digest(file).sha256 != entry.sha256:
            raise CheckpointError(
                f"{file} was changed or the disk is bad: restore the checkpoint directory from a copy"
            )
    return state


def check_layout(state: TrainerState, settings: Settings, checkpoint: Path) -> None:
    """Refuse to go on under settings that the stored state does not fit.

    Raises:
        CheckpointError: names the first setting that differs.
    """
    wanted = layout_of(settings)
    for name in Layout.model_fields:
        had, has = getattr(state.layout, name), getattr(wanted, name)
        if had != has:
            raise CheckpointError(
                f"{checkpoint} was trained with {name} {had}, the settings say {has}: restore the setting, "
                "or start a new run from these weights"
            )


def load_adapters(model: torch.nn.Module, checkpoint: Path) -> None:
    """Put the stored adapters into a model, before its engine is made.

    Raises:
        CheckpointError: they do not fit.
    """
    adapters = adapter_tensors(model)
    stored = _load(checkpoint / FOLDER / ADAPTERS)
    if {name: value.shape for name, value in stored.items()} != {n: v.shape for n, v in adapters.items()}:
        raise CheckpointError(f"{checkpoint / FOLDER / ADAPTERS} does not fit the model: was trainer.lora changed?")
    with torch.no_grad():
        for name, parameter in adapters.items():
            parameter.copy_(stored[name])


def load_optimizer(engine: Engine, checkpoint: Path, state: TrainerState) -> None:
    """Put the stored optimizer state into a fresh engine.

    Raises:
        CheckpointError: it does not fit, or the optimizer would be fresh all the same.
    """
    file = checkpoint / FOLDER / _shard()
    stored = _load(file)
    for index, parameter in enumerate(_partitions(engine)):
        own = {key: stored.pop(f"{index}.{key}", None) for key in ("exp_avg", "exp_avg_sq", "step")}
        if any(value is None for value in own.values()) or own["exp_avg"].shape != parameter.shape:  # type: ignore[union-attr]
            raise CheckpointError(f"{file} does not fit the optimizer: restore the checkpoint directory from a copy")
        master = stored.pop(f"{index}.master", None)
        with torch.no_grad():
            if master is not None:
                parameter.copy_(master)
            engine.optimizer.state[parameter] = {
                key: value if key == "step" else value.to(parameter.device)  # type: ignore[union-attr]
                for key, value in own.items()
            }
    steps = optimizer_steps(engine)
    if stored or steps == 0 or steps != state.optimizer_steps:
        raise CheckpointError(f"{file} gives an optimizer at step {steps}, {state.optimizer_steps} was recorded")


def _shard() -> str:
    return f"optimizer-{torch.distributed.get_rank() if torch.distributed.is_initialized() else 0:05d}.safetensors"


def _partitions(engine: Engine) -> list[Tensor]:
    """The tensors that the torch optimizer steps: parameters, or the flat partitions that ZeRO made of them."""
    flat: list[Tensor] | None = getattr(engine.deepspeed.optimizer, "fp32_partitioned_groups_flat", None)
    if flat is not None:
        return flat
    return [parameter for group in engine.optimizer.param_groups for parameter in group["params"]]


def _optimizer_tensors(engine: Engine) -> dict[str, Tensor]:
    """State by ``<index>.<key>``; ``master`` where the optimizer steps a copy and not the model's own parameter."""
    parameters = {id(parameter) for parameter in engine.policy.parameters()}
    tensors: dict[str, Tensor] = {}
    for index, partition in enumerate(_partitions(engine)):
        state: dict[str, Any] = engine.optimizer.state[partition]
        for key in ("exp_avg", "exp_avg_sq", "step"):
            tensors[f"{index}.{key}"] = torch.as_tensor(state[key]).detach().cpu().contiguous()
        if id(partition) not in parameters:
            tensors[f"{index}.master"] = partition.detach().cpu().contiguous()
    return tensors


def _load(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}): restore the directory from a copy") from error
