"""The policy as the trainer holds it: a Hugging Face causal language model, whole or with adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spade_daemon.errors import CheckpointError, ConfigError
from spade_daemon.policy.model_store import TensorShapes, tensor_shapes
from spade_daemon.settings import Settings
from spade_daemon.trainer.head import token_logprobs
from spade_daemon.trainer.lora import add_adapters, merged_weight

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TrainedPolicy(nn.Module):
    """One forward pass gives the log-probabilities of the trained tokens and nothing else."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: Tensor, rows: Tensor, columns: Tensor, targets: Tensor, temperatures: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, [N] each, of the tokens that a micro-batch trains.

        See :class:`spade_daemon.trainer.packing.MicroBatch` for the arguments.
        """
        hidden = self.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        return token_logprobs(self.model.get_output_embeddings(), hidden[rows, columns], targets, temperatures)


def load_policy(weights: Path, settings: Settings) -> TrainedPolicy:
    """Load the weights of a directory, to be trained as ``trainer.method`` says.

    Raises:
        ConfigError: an architecture whose log-probabilities this trainer would get wrong.
        CheckpointError: the model does not have the tensors that its directory holds.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(weights)
    _check(config, weights)
    for name in ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"):
        if getattr(config, name, 0.0):
            setattr(config, name, 0.0)
    model = AutoModelForCausalLM.from_pretrained(
        weights, config=config, dtype=DTYPES[settings.model.dtype], attn_implementation="sdpa"
    )
    model.train()
    if settings.trainer.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if settings.trainer.method == "lora":
        add_adapters(model, settings.trainer.lora, settings.curriculum.seed)
    check_tensors(model, tensor_shapes(weights), weights)
    return TrainedPolicy(model)


def _check(config: Any, weights: Path) -> None:
    """Refuse what changes logits after the head: the trainer computes ``head(hidden)`` alone."""
    for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise ConfigError(f"{weights}: models with {name} cannot be trained yet; choose another model.name")


def check_tensors(model: nn.Module, expected: TensorShapes, weights: Path) -> None:
    """See that exactly the tensors of a directory can be written again from ``model``.

    Raises:
        CheckpointError: one is missing or has another shape.
    """
    for name, shape in expected.items():
        found = _shape(model, name)
        if found != shape:
            raise CheckpointError(
                f"{weights}: tensor {name} has shape {list(shape)}, the loaded model has {found and list(found)}: "
                "its architecture stores weights in another form; choose another model.name"
            )


def _owner(model: nn.Module, name: str) -> tuple[Any, str] | None:
    """The module that holds the tensor ``name`` of a checkpoint, and the attribute there."""
    path, _, attribute = name.rpartition(".")
    try:
        return model.get_submodule(path), attribute
    except AttributeError:
        return None


def _tensor(model: nn.Module, name: str) -> Tensor | None:
    owner = _owner(model, name)
    if owner is None:
        return None
    module = getattr(owner[0], "base_layer", owner[0])
    value = getattr(module, owner[1], None)
    return value if isinstance(value, Tensor) else None


def _shape(model: nn.Module, name: str) -> tuple[int, ...] | None:
    value = _tensor(model, name)
    return None if value is None else tuple(getattr(value, "ds_shape", value.shape))


def published_tensors(model: nn.Module, names: Iterator[str] | list[str]) -> Iterator[tuple[str, Tensor]]:
    """The weights that a server loads, one at a time: adapters merged, names as in the base checkpoint.

    Under ZeRO 3 every process must go through all of it together: the weights are gathered on the way.
    """
    for name in names:
        owner = _owner(model, name)
        assert owner is not None, name
        module, attribute = owner
        with torch.no_grad(), gathered(list(module.parameters())):
            if hasattr(module, "base_layer") and attribute == "weight":
                yield name, merged_weight(module)
            else:
                value = _tensor(model, name)
                assert value is not None, name
                yield name, value.detach()


def gathered(parameters: list[nn.Parameter]) -> Any:
    """Context in which parameters that ZeRO 3 has partitioned are whole; nothing to do for others."""
    from contextlib import nullcontext

    partitioned = [parameter for parameter in parameters if hasattr(parameter, "ds_id")]
    if not partitioned:
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(partitioned)
