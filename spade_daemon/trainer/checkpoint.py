"""Checkpoint directories from the writer's side. The format, and how a reader checks it: ``policy/checkpoint.py``.

A directory appears as a whole, by one rename, after everything in it is on the disk; its manifest is the last file. It
never changes. Only one process, the trainer, makes and removes directories here.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import structlog
from safetensors import SafetensorError

from schemas.records import Canary, CheckpointManifest
from spade_daemon.errors import CheckpointError
from spade_daemon.log.state import State
from spade_daemon.policy.checkpoint import MANIFEST, checkpoint_directory, read_manifest, verify
from spade_daemon.policy.model_store import TensorShapes, file_digest, sync, tensor_shapes
from spade_daemon.settings import Settings
from spade_daemon.trainer import optimizer_state
from spade_daemon.trainer.engine import Engine, optimizer_steps
from spade_daemon.trainer.files import (
    remove,
    require_space,
    sync_tree,
    tensor_bytes,
    write_tensors,
    write_text,
)
from spade_daemon.trainer.model import DTYPES, published_tensors
from spade_daemon.trainer.optimizer_state import FOLDER, TrainerState

log = structlog.get_logger()

WEIGHTS = "model.safetensors"
MODEL_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
NOT_COPIED = ("config.json", "spade-model.json", MANIFEST)


@dataclass(frozen=True, slots=True)
class Making:
    """What a checkpoint is made of, beside the weights."""

    version: int
    parent: int
    epoch: int
    consumed_sequence: int
    metrics: dict[str, float]
    seconds: float
    canary: Canary


def write_checkpoint(engine: Engine, base: Path, making: Making, settings: Settings) -> Path:
    """Write the weights, the files beside them and the trainer's state, then rename them into place.

    Raises:
        CheckpointError: too little disk, a disk that fails, or a weight that is not finite.
    """
    try:
        return _write(engine, base, making, settings)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"checkpoint {making.version} cannot be written ({error}): see to the disk, then restart the trainer"
        ) from error


def _write(engine: Engine, base: Path, making: Making, settings: Settings) -> Path:
    final = checkpoint_directory(settings.run_home(), making.version)
    final.parent.mkdir(parents=True, exist_ok=True)
    work = final.with_name(f".tmp-{final.name}")
    if work.exists() and not remove(work):
        raise CheckpointError(f"{work} is in the way and cannot be removed: delete it")
    shapes, dtype = tensor_shapes(base), DTYPES[settings.model.dtype]
    trained = sum(parameter.numel() for parameter in engine.policy.parameters() if parameter.requires_grad)
    require_space(final.parent, tensor_bytes(shapes, dtype) + 12 * trained, settings.trainer.min_free_gb)
    (work / FOLDER).mkdir(parents=True)
    write_tensors(work / WEIGHTS, shapes, dtype, published_tensors(engine.policy.model, list(shapes)))
    _copy_model_files(base, work, settings.model.dtype)
    optimizer_state.save_tensors(engine, work / FOLDER)
    optimizer_state.save_state(work / FOLDER, _trainer_state(engine, making, settings))
    sync_tree(work)
    write_text(work / MANIFEST, _manifest(work, shapes, making, settings).model_dump_json(indent=1))
    sync(work)
    work.rename(final)
    sync(final.parent)
    return final


def _trainer_state(engine: Engine, making: Making, settings: Settings) -> TrainerState:
    return TrainerState(
        version=making.version,
        consumed_sequence=making.consumed_sequence,
        optimizer_steps=optimizer_steps(engine),
        layout=optimizer_state.layout_of(settings),
        metrics=making.metrics,
        seconds=making.seconds,
        canary=making.canary,
        files=(),
    )


def _manifest(work: Path, shapes: TensorShapes, making: Making, settings: Settings) -> CheckpointManifest:
    return CheckpointManifest(
        version=making.version,
        parent=making.parent,
        epoch=making.epoch,
        base_model=settings.model.name,
        consumed_sequence=making.consumed_sequence,
        tensors=len(shapes),
        dtype=settings.model.dtype,
        files=tuple(file_digest(path) for path in sorted(work.iterdir()) if path.is_file()),
    )


def _copy_model_files(base: Path, work: Path, dtype: str) -> None:
    """Copy tokenizer and configuration; the configuration tells the type that the weights are stored in."""
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    config.pop("torch_dtype", None)
    write_text(work / "config.json", json.dumps(config | {"dtype": dtype}, indent=2, sort_keys=True))
    for pattern in MODEL_FILES:
        for path in sorted(base.glob(pattern)):
            if path.is_file() and path.name not in NOT_COPIED and not path.name.endswith(".index.json"):
                shutil.copyfile(path, work / path.name)


def read_leftover(settings: Settings, making: tuple[int, int, int]) -> TrainerState | None:
    """The state of a complete directory whose publication a crash prevented, if it is the one we would make now.

    It is taken when version, epoch and consumed sequence are those of ``making`` and every digest is right. Anything
    else under that name was never published either, so nobody reads it: it is removed, and the batch trained again.

    Args:
        making: (version, epoch, consumed sequence) of the batch that is to be trained next.
    """
    version, epoch, consumed = making
    directory = checkpoint_directory(settings.run_home(), version)
    if not directory.exists():
        return None
    try:
        manifest = read_manifest(directory)
        if (manifest.version, manifest.epoch, manifest.consumed_sequence) != making:
            raise CheckpointError(f"{directory} was made from another batch (epoch {manifest.epoch}, wanted {epoch})")
        verify(directory, manifest, deep=True)
        state = optimizer_state.read_state(directory, deep=True)
        optimizer_state.check_layout(state, settings, directory)
    except CheckpointError as error:
        log.warning("unpublished checkpoint removed", version=version, consumed=consumed, reason=str(error))
        if not remove(directory):
            raise CheckpointError(f"{directory} was never published and cannot be removed: delete it") from error
        return None
    return state


def remove_partial(settings: Settings) -> None:
    """Delete what a killed trainer left half-written."""
    for path in sorted((settings.run_home() / "checkpoints").glob(".tmp-*")):
        remove(path)


def remove_old(state: State, settings: Settings) -> list[int]:
    """Delete published checkpoints beyond ``trainer.keep_checkpoints``; the versions that are gone.

    Kept are the newest ones, and whatever a server is known to serve.
    """
    published = sorted(state.checkpoints)
    kept = set(published[-max(2, settings.trainer.keep_checkpoints) :]) | set(state.serving.values())
    gone = []
    for version in published:
        directory = checkpoint_directory(settings.run_home(), version)
        if version not in kept and directory.is_dir() and remove(directory):
            gone.append(version)
    if gone:
        log.info("old checkpoints removed", versions=gone)
    return gone
