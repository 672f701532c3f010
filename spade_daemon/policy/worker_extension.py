"""What we add to vLLM's worker: a weight swap that refuses a bad checkpoint before it touches a weight.

vLLM mixes :class:`WeightSwap` into its worker class; the methods are called through ``/collective_rpc``. Imported in
vLLM's processes only. Names must not collide with those of the worker.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from spade_daemon.errors import CheckpointError
from spade_daemon.policy.model_store import TensorShapes, tensor_shapes

CLASS = "spade_daemon.policy.worker_extension.WeightSwap"
"""For ``--worker-extension-cls``."""


class WeightSwap:
    """Worker methods of the swap. Answers are plain dictionaries, because they travel as JSON."""

    vllm_config: Any
    model_runner: Any
    reload_weights: Any
    _spade_shapes: TensorShapes

    def spade_ping(self) -> dict[str, Any]:
        """Answer from inside the worker: the only proof that it is alive."""
        return {"ok": True}

    def spade_swap(self, path: str) -> dict[str, Any]:
        """Load the checkpoint directory ``path`` in place of the served weights.

        Tensor names and shapes must equal those of the model the server started with. vLLM's own reload discards the
        weights before it reads the files, so that a bad file would cost the engine: hence the check comes first.

        Returns:
            ``{"ok": true, "seconds": …}``, or ``{"ok": false, "touched": …, "error": …}``: with ``touched`` false
            the old weights still serve, with true the engine holds a mixture and must not generate.
        """
        try:
            self._check(Path(path))
        except (CheckpointError, OSError) as error:
            return {"ok": False, "touched": False, "error": str(error)}
        begin = time.perf_counter()
        try:
            self.reload_weights(weights_path=path)
            repacked = repack_tied_heads(self.model_runner.get_model())
        except Exception as error:  # whatever it was, the caller must learn that the weights are half loaded
            return {"ok": False, "touched": True, "error": f"{type(error).__name__}: {error}"[:500]}
        return {"ok": True, "seconds": time.perf_counter() - begin, "repacked": repacked}

    def _check(self, path: Path) -> None:
        if not hasattr(self, "_spade_shapes"):
            self._spade_shapes = tensor_shapes(Path(self.vllm_config.model_config.model))
        wanted, found = self._spade_shapes, tensor_shapes(path)
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        if wrong:
            raise CheckpointError(
                f"{path} differs from the served model in {len(wrong)} tensors, first {wrong[0]}: "
                f"{found.get(wrong[0], 'missing')} instead of {wanted.get(wrong[0], 'nothing')}"
            )


def repack_tied_heads(model: Any) -> int:
    """Rebuild the packed copy that a tied output head keeps on a CPU; returns how many there were.

    A reload loads tied weights into the embedding alone. On a CPU the head multiplies with its own packed copy, which
    a reload leaves as it was: the model would go on with the old head, without any error. On a GPU the head reads the
    shared parameter and nothing needs doing.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return 0
    heads = [module for _, module in model.named_modules() if isinstance(module, ParallelLMHead)]
    packed = [head for head in heads if head.weight.numel() > 0]
    for head in packed:
        head.quant_method.process_weights_after_loading(head)
    return len(packed)


__all__ = ["CLASS", "WeightSwap", "repack_tied_heads"]
