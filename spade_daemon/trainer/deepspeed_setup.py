"""What DeepSpeed is told: accelerator, process group, configuration. No operator is compiled on the way."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from spade_daemon.settings import Settings

COLLECTIVE_TIMEOUT = timedelta(minutes=30)


def accelerate(settings: Settings) -> torch.device:
    """Choose the accelerator before DeepSpeed guesses one, and the number of threads."""
    os.environ["DS_ACCELERATOR"] = "cuda" if settings.policy.device == "gpu" else "cpu"
    if settings.policy.device == "gpu":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    torch.set_num_threads(settings.trainer.threads)
    return torch.device("cpu")


def join_process_group(settings: Settings) -> None:
    """Join the group of the launcher that started us; without one, be a group of one.

    A group of one meets in a temporary file, so that two trainers on a host cannot take each other's port.
    """
    import deepspeed

    # Its shared-memory operator is compiled on first use, for over a minute; gloo does without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if torch.distributed.is_initialized():
        return
    backend = "nccl" if settings.policy.device == "gpu" else "gloo"
    common = {"dist_backend": backend, "auto_mpi_discovery": False, "timeout": COLLECTIVE_TIMEOUT, "verbose": False}
    if "RANK" in os.environ and "MASTER_ADDR" in os.environ:
        deepspeed.init_distributed(**common)
        return
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    meeting = Path(tempfile.mkdtemp(prefix="spade-trainer-")) / "group"
    deepspeed.init_distributed(init_method=meeting.as_uri(), rank=0, world_size=1, **common)


def configuration(settings: Settings) -> dict[str, Any]:
    """DeepSpeed's configuration.

    Gradient accumulation is ours: ``backward`` adds up and each ``step`` is one update, however many micro-batches a
    batch has. Losses are sums over fixed denominators, so nothing may be averaged over micro-batches.
    """
    trainer = settings.trainer
    zero: dict[str, Any] = {"stage": trainer.zero_stage}
    if trainer.zero_stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
    if trainer.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": settings.policy.device == "gpu"}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": trainer.gradient_clip,
        "bf16": {"enabled": settings.model.dtype == "bfloat16"},
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1_000_000_000,
    }
