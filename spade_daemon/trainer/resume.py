"""From the log's last checkpoint to an engine that goes on exactly where it stopped."""

from __future__ import annotations

from pathlib import Path

import structlog

from schemas.events import CheckpointPublished
from spade_daemon.policy.checkpoint import open_checkpoint
from spade_daemon.settings import Settings
from spade_daemon.trainer import optimizer_state
from spade_daemon.trainer.engine import Engine, make_engine
from spade_daemon.trainer.model import load_policy

log = structlog.get_logger()


def resume(base: Path, published: CheckpointPublished | None, settings: Settings) -> Engine:
    """An engine with the weights and the optimizer state of ``published``; of the base model before the first one.

    There is no way past a damaged checkpoint: older weights would no longer be those that the log says are served, and
    a fresh optimizer would be another run. The error says what to restore.

    Raises:
        CheckpointError: the directory is missing, damaged, or does not fit the settings.
    """
    if published is None:
        log.info("training begins with the base model", model=str(base))
        return make_engine(load_policy(base, settings), settings)
    directory = Path(published.path)
    open_checkpoint(directory, published.policy, published.manifest, deep=True)
    state = optimizer_state.read_state(directory, deep=True)
    optimizer_state.check_layout(state, settings, directory)
    lora = settings.trainer.method == "lora"
    policy = load_policy(base if lora else directory, settings)
    if lora:
        optimizer_state.load_adapters(policy, directory)
    engine = make_engine(policy, settings)
    optimizer_state.load_optimizer(engine, directory, state)
    log.info("training resumed", policy=published.policy, steps=state.optimizer_steps, path=str(directory))
    return engine
