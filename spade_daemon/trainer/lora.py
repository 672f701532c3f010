"""Low-rank adapters on the linear layers of the transformer blocks, and the full weights that they amount to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from spade_daemon.settings import LoraSettings

ADAPTER = "policy"


def blocks_of(model: Any) -> nn.ModuleList:
    """The transformer blocks of a causal language model, in order."""
    blocks = model.get_decoder().layers
    assert isinstance(blocks, nn.ModuleList)
    return blocks


def add_adapters(model: Any, settings: LoraSettings, seed: int) -> None:
    """Freeze ``model`` and put an adapter beside each linear layer of the trained blocks.

    Equal seeds give equal adapters, so that a trainer killed before its first checkpoint begins again the same.
    """
    from peft import LoraConfig, inject_adapter_in_model

    blocks = blocks_of(model)
    first = 0 if settings.layers is None else max(0, len(blocks) - settings.layers)
    chosen = {id(module) for block in blocks[first:] for module in block.modules() if isinstance(module, nn.Linear)}
    targets = [name for name, module in model.named_modules() if id(module) in chosen]
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=0.0, target_modules=targets, bias="none"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def adapter_tensors(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters by name; empty without adapters."""
    return {name: parameter for name, parameter in model.named_parameters() if "lora_" in name}


def merged_weight(module: Any) -> Tensor:
    """``W + scale B A`` of one adapted layer, summed in float32."""
    base: Tensor = module.base_layer.weight.detach()
    delta: Tensor = module.get_delta_weight(ADAPTER).detach()
    return (base.float() + delta.float()).to(base.dtype)
