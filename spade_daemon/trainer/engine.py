"""One optimizer step a batch on DeepSpeed, for both roles together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
import torch
from torch import Tensor

from schemas.words import Role
from spade_daemon.errors import CheckpointError
from spade_daemon.settings import Settings, TrainerSettings
from spade_daemon.trainer import deepspeed_setup
from spade_daemon.trainer.losses import RoleSums, role_loss
from spade_daemon.trainer.memory import trim
from spade_daemon.trainer.model import TrainedPolicy
from spade_daemon.trainer.packing import MicroBatch, collate, pack
from spade_daemon.trainer.samples import TrainingSample, token_counts

log = structlog.get_logger()


class BatchAbandoned(Exception):
    """The process was asked to stop in the middle of a batch. Nothing was changed that outlives it."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The DeepSpeed engine around the policy that it trains."""

    deepspeed: Any
    policy: TrainedPolicy
    device: torch.device
    settings: Settings

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The torch optimizer inside, whatever ZeRO wraps around it."""
        optimizer: torch.optim.Optimizer = self.deepspeed.basic_optimizer
        return optimizer


def make_engine(policy: TrainedPolicy, settings: Settings) -> Engine:
    """Put ``policy`` on the device under a DeepSpeed engine with a fresh AdamW. Slow: once a process."""
    device = deepspeed_setup.accelerate(settings)
    deepspeed_setup.join_process_group(settings)
    import deepspeed

    deepspeed.logger.setLevel("WARNING")
    engine, *_ = deepspeed.initialize(
        model=policy,
        optimizer=torch.optim.AdamW(_parameter_groups(policy, settings.trainer), **_adam(settings.trainer)),
        config=deepspeed_setup.configuration(settings),
    )
    for state in engine.basic_optimizer.state.values():
        # Some wrappers take a step with zero gradients to allocate memory; it must not count in Adam's bias correction.
        state["step"].zero_()
    return Engine(engine, policy, device, settings)


def _adam(settings: TrainerSettings) -> dict[str, Any]:
    return {"lr": settings.learning_rate, "betas": settings.betas}


def _parameter_groups(policy: TrainedPolicy, settings: TrainerSettings) -> list[dict[str, Any]]:
    """Matrices decay, norms and biases do not."""
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.ndim > 1]
    rest = [parameter for parameter in trained if parameter.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def train_batch(
    engine: Engine, samples: Sequence[TrainingSample], version: int, cancelled: Callable[[], bool] = lambda: False
) -> dict[str, float]:
    """Make policy ``version``: gradients of all micro-batches, one step.

    Args:
        samples: the whole batch.
        version: seeds the random numbers, so that a repeated step is the same step.
        cancelled: asked between micro-batches.

    Returns:
        Metrics of each role, the gradient norm and the number of micro-batches.

    Raises:
        BatchAbandoned: ``cancelled`` said so; the engine must not be used any more.
        CheckpointError: the loss or the gradient is not a number; no step was taken on the former.
    """
    torch.manual_seed(engine.settings.curriculum.seed * 1_000_003 + version)
    denominators = token_counts(samples)
    sums = {role: RoleSums() for role in Role}
    packed = pack(samples, engine.settings.trainer.micro_batch_tokens)
    for number, group in enumerate(packed):
        if cancelled():
            raise BatchAbandoned
        micro = collate(group).to(engine.device)
        loss = _loss(engine, micro, denominators, sums)
        if not math.isfinite(float(loss.detach())):
            raise CheckpointError(f"loss of batch {version} is not finite: lower trainer.learning_rate or start anew")
        engine.deepspeed.backward(loss)
        del loss
        if engine.device.type == "cpu":
            trim()
        log.info("micro-batch trained", policy=version, number=number + 1, of=len(packed), tokens=micro.ids.numel())
    if cancelled():
        raise BatchAbandoned
    metrics = {"gradient_norm": _step(engine), "micro_batches": float(len(packed))}
    metrics["steps"] = float(optimizer_steps(engine))
    for role, total in sums.items():
        metrics |= total.metrics(role.value)
    return metrics


def _loss(engine: Engine, micro: MicroBatch, denominators: dict[Role, int], sums: dict[Role, RoleSums]) -> Tensor:
    """Loss of one micro-batch; adds its metrics to ``sums``."""
    settings = engine.settings.trainer
    logprobs, entropy = engine.deepspeed(micro.ids, micro.rows, micro.columns, micro.targets, micro.temperatures)
    # DeepSpeed averages gradients over processes, and each process holds its share of one batch.
    processes = torch.distributed.get_world_size()
    total: Tensor = logprobs.sum() * 0.0
    for role, weight in ((Role.AGENT, 1.0), (Role.DESIGNER, settings.role_weight_designer)):
        chosen = micro.designer if role is Role.DESIGNER else ~micro.designer
        if not bool(chosen.any()):
            continue
        loss, more = role_loss(
            settings.loss,
            logprobs[chosen],
            micro.sampler[chosen],
            micro.advantages[chosen],
            entropy[chosen],
            denominator=denominators[role],
            weight=weight * processes,
        )
        total = total + loss
        sums[role] += more
    return total


def _step(engine: Engine) -> float:
    """Update the weights; the norm of the gradient before it was clipped."""
    plain = engine.deepspeed.optimizer is engine.optimizer
    # Without ZeRO or mixed precision DeepSpeed clips and does not say the norm, and the step drops the gradients.
    norm = float(_total_norm(engine.policy)) if plain else 0.0
    if math.isfinite(norm):
        engine.deepspeed.step()
        norm = norm if plain else float(engine.deepspeed.get_global_grad_norm() or 0.0)
    if not math.isfinite(norm):
        raise CheckpointError("the gradient is not finite: lower trainer.learning_rate or trainer.gradient_clip")
    return norm


def _total_norm(policy: TrainedPolicy) -> Tensor:
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    norm: Tensor = torch.nn.utils.get_total_norm(gradients)
    return norm


def optimizer_steps(engine: Engine) -> int:
    """Steps that the optimizer has taken, as its own state says; 0 when fresh."""
    steps = [int(state["step"]) for state in engine.optimizer.state.values() if "step" in state]
    return max(steps, default=0)


__all__ = ["BatchAbandoned", "Engine", "make_engine", "optimizer_steps", "train_batch"]
