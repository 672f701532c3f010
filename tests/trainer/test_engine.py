"""Real steps of a tiny model on DeepSpeed: they teach, resume exactly, and are what a server loads."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from schemas.events import CheckpointPublished
from schemas.records import Canary
from schemas.words import Role
from spade_daemon.errors import CheckpointError, ConfigError
from spade_daemon.policy.checkpoint import checkpoint_directory, manifest_digest, open_checkpoint
from spade_daemon.settings import Settings
from spade_daemon.trainer.canary import canary_of
from spade_daemon.trainer.checkpoint import Making, read_leftover, write_checkpoint
from spade_daemon.trainer.engine import BatchAbandoned, Engine, make_engine, optimizer_steps, train_batch
from spade_daemon.trainer.losses import role_loss
from spade_daemon.trainer.model import check_tensors, load_policy, published_tensors
from spade_daemon.trainer.packing import collate
from spade_daemon.trainer.resume import resume
from spade_daemon.trainer.samples import TrainingSample, token_counts
from tests.trainer.tiny import batch, sample, settings_for

pytestmark = pytest.mark.servers

PROMPT = tuple(range(3, 35))
LORA = ("trainer.method=lora", "trainer.lora.rank=4")


def publish(engine: Engine, base: Path, settings: Settings, version: int) -> CheckpointPublished:
    """Write a checkpoint, and the event that would name it."""
    making = Making(version, version - 1, 1, version * 10, {"gradient_norm": 1.0}, 1.0, canary_of(engine, PROMPT))
    directory = write_checkpoint(engine, base, making, settings)
    return CheckpointPublished(
        policy=version,
        parent=version - 1,
        path=str(directory),
        manifest=manifest_digest(directory),
        consumed_sequence=version * 10,
        groups=(),
        designs=(),
        dropped={},
        metrics={},
        seconds=1.0,
    )


def logprob(engine: Engine, one: TrainingSample) -> float:
    """Sum of the log-probabilities of a sample's trained tokens."""
    micro = collate([one])
    with torch.no_grad():
        logprobs, _ = engine.policy(micro.ids, micro.rows, micro.columns, micro.targets, micro.temperatures)
    return float(logprobs.sum())


def weights(engine: Engine) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in engine.policy.state_dict().items()}


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


@pytest.mark.parametrize("loss", ["dppo", "ppo", "cispo"])
@pytest.mark.parametrize("method", [(), LORA], ids=["full", "lora"])
def test_steps_follow_the_advantage(tmp_path: Path, base: Path, loss: str, method: tuple[str, ...]) -> None:
    settings = settings_for(tmp_path, base, f"trainer.loss={loss}", *method)
    engine = make_engine(load_policy(base, settings), settings)
    good, bad = sample(1, 1.0), sample(2, -1.0)
    before = logprob(engine, good), logprob(engine, bad)
    for version in range(1, 6):
        metrics = train_batch(engine, (good, bad), version)
        assert metrics["gradient_norm"] > 0
        assert metrics["steps"] == version
    assert logprob(engine, good) > before[0] + 1
    assert logprob(engine, bad) < before[1]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_step_is_plain_adamw_on_the_whole_batch(tmp_path: Path, base: Path, stage: int) -> None:
    """Micro-batches, roles, denominators, clipping and ZeRO together equal one step written out in torch."""
    settings = settings_for(tmp_path, base, f"trainer.zero_stage={stage}", "trainer.role_weight_designer=0.5")
    engine = make_engine(load_policy(base, settings), settings)
    metrics = train_batch(engine, batch(), 1)
    assert metrics["micro_batches"] > 1

    plain = load_policy(base, settings)
    trained = list(plain.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": settings.trainer.weight_decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=settings.trainer.learning_rate,
        betas=settings.trainer.betas,
    )
    micro, counts = collate(batch()), token_counts(batch())
    logprobs, entropy = plain(micro.ids, micro.rows, micro.columns, micro.targets, micro.temperatures)
    total = torch.zeros(())
    for role, chosen, weight in ((Role.AGENT, ~micro.designer, 1.0), (Role.DESIGNER, micro.designer, 0.5)):
        arguments = (logprobs[chosen], micro.sampler[chosen], micro.advantages[chosen], entropy[chosen])
        loss, _ = role_loss("dppo", *arguments, denominator=counts[role], weight=weight)
        total = total + loss
    total.backward()
    norm = torch.nn.utils.clip_grad_norm_(trained, settings.trainer.gradient_clip)
    optimizer.step()
    assert metrics["gradient_norm"] == pytest.approx(float(norm), rel=1e-3)
    expected = dict(published_tensors(plain.model, [name for name, _ in plain.model.named_parameters()]))
    for name, value in published_tensors(engine.policy.model, list(expected)):
        # Adam's first step is the sign of the gradient: where that is dust, it may point either way.
        close = torch.isclose(value, expected[name], rtol=1e-3, atol=1e-4).float().mean()
        assert close > 0.99, name


@pytest.mark.parametrize(
    ("dtype", "stage"), [("float32", 0), ("float32", 2), ("float32", 3), ("bfloat16", 0), ("bfloat16", 2)]
)
@pytest.mark.parametrize("method", [(), LORA], ids=["full", "lora"])
def test_resume_is_exact(tmp_path: Path, base: Path, method: tuple[str, ...], dtype: str, stage: int) -> None:
    settings = settings_for(tmp_path, base, f"trainer.zero_stage={stage}", f"model.dtype={dtype}", *method)
    engine = make_engine(load_policy(base, settings), settings)
    train_batch(engine, batch(1), 1)
    published = publish(engine, base, settings, 1)
    train_batch(engine, batch(2), 2)
    again = resume(base, published, settings)
    assert optimizer_steps(again) == 1
    train_batch(again, batch(2), 2)
    names = list(load_file(Path(published.path) / "model.safetensors"))
    expected = {name: value.clone() for name, value in published_tensors(engine.policy.model, names)}
    found = {name: value.clone() for name, value in published_tensors(again.policy.model, names)}
    assert_same(expected, found)
    moved = load_file(Path(published.path) / "model.safetensors")
    assert any(not torch.equal(moved[name], value) for name, value in found.items())


@pytest.mark.parametrize("method", [(), LORA, (*LORA, "trainer.lora.layers=1")], ids=["full", "lora", "last block"])
def test_a_checkpoint_is_the_policy(tmp_path: Path, base: Path, method: tuple[str, ...]) -> None:
    """transformers loads it, with the base's names, and it says of the canary what the trainer said."""
    from transformers import AutoModelForCausalLM

    settings = settings_for(tmp_path, base, *method)
    engine = make_engine(load_policy(base, settings), settings)
    for version in (1, 2, 3):
        train_batch(engine, batch(), version)
    published = publish(engine, base, settings, 3)
    directory = Path(published.path)
    manifest = open_checkpoint(directory, 3, published.manifest, deep=True)
    assert {entry.name for entry in manifest.files} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    before, after = load_file(base / "model.safetensors"), load_file(directory / "model.safetensors")
    assert {name: value.shape for name, value in before.items()} == {n: v.shape for n, v in after.items()}
    assert json.loads((directory / "config.json").read_text())["dtype"] == "float32"
    canary = canary_of(engine, PROMPT)
    loaded = AutoModelForCausalLM.from_pretrained(directory)
    original = AutoModelForCausalLM.from_pretrained(base)
    assert scores(loaded, canary) == pytest.approx(list(canary.logprobs), abs=2e-5)
    assert scores(original, canary) != pytest.approx(list(canary.logprobs), abs=1e-2)
    if "trainer.lora.layers=1" in method:
        same = {name for name, value in before.items() if torch.equal(value, after[name])}
        assert same == {name for name in before if "layers.1." not in name or "norm" in name}


def scores(model: torch.nn.Module, canary: Canary) -> list[float]:
    ids = torch.tensor([canary.ids])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    found: list[float] = logprobs.gather(-1, ids[0, 1:, None]).squeeze(-1).tolist()
    return found


def test_temperature_divides_the_logits(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base)
    policy = load_policy(base, settings)
    micro = collate([sample(1, 1.0, temperature=0.5)])
    with torch.no_grad():
        found, _ = policy(micro.ids, micro.rows, micro.columns, micro.targets, micro.temperatures)
        logits = policy.model(micro.ids).logits[0, micro.columns] / 0.5
    expected = logits.log_softmax(-1).gather(-1, micro.targets[:, None]).squeeze(-1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing(tmp_path: Path, base: Path) -> None:
    policy = load_policy(base, settings_for(tmp_path, base))

    def run(samples: list[TrainingSample]) -> list[float]:
        micro = collate(samples)
        with torch.no_grad():
            found, _ = policy(micro.ids, micro.rows, micro.columns, micro.targets, micro.temperatures)
        values: list[float] = found.tolist()
        return values

    long, short = sample(1, 1.0, length=60), sample(2, 1.0, length=20)
    assert run([long, short]) == pytest.approx(run([long]) + run([short]), abs=1e-5)


def test_a_stop_between_micro_batches_abandons_the_batch(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base)
    engine = make_engine(load_policy(base, settings), settings)
    before, answers = weights(engine), iter((False, True))
    with pytest.raises(BatchAbandoned):
        train_batch(engine, batch(), 1, lambda: next(answers))
    assert_same(before, weights(engine))


def test_a_loss_that_is_not_a_number_takes_no_step(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base)
    engine = make_engine(load_policy(base, settings), settings)
    before = weights(engine)
    with pytest.raises(CheckpointError, match="not finite"):
        train_batch(engine, (replace(sample(1, 1.0), advantage=math.nan),), 1)
    assert_same(before, weights(engine))


def test_weights_that_are_not_finite_are_never_published(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base)
    engine = make_engine(load_policy(base, settings), settings)
    train_batch(engine, batch(), 1)
    canary = canary_of(engine, PROMPT)
    with torch.no_grad():
        next(engine.policy.parameters())[0, 0] = math.inf
    with pytest.raises(CheckpointError, match="not finite"):
        write_checkpoint(engine, base, Making(1, 0, 1, 10, {}, 1.0, canary), settings)
    assert not checkpoint_directory(settings.run_home(), 1).exists()


def test_a_full_disk_is_refused_before_anything_is_written(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base, "trainer.min_free_gb=1e9")
    engine = make_engine(load_policy(base, settings), settings)
    with pytest.raises(CheckpointError, match="min_free_gb"):
        publish(engine, base, settings, 1)
    assert list((settings.run_home() / "checkpoints").iterdir()) == []


def test_a_disk_that_fails_is_told_in_one_line(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base)
    engine = make_engine(load_policy(base, settings), settings)
    train_batch(engine, batch(), 1)
    settings.run_home().mkdir(parents=True)
    (settings.run_home() / "checkpoints").write_text("in the way", encoding="utf-8")
    with pytest.raises(CheckpointError, match="see to the disk"):
        publish(engine, base, settings, 1)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "trainer/optimizer-00000.safetensors"])
def test_a_damaged_checkpoint_is_not_resumed(tmp_path: Path, base: Path, name: str) -> None:
    settings = settings_for(tmp_path, base)
    engine = make_engine(load_policy(base, settings), settings)
    train_batch(engine, batch(), 1)
    published = publish(engine, base, settings, 1)
    damage(Path(published.path) / name)
    with pytest.raises(CheckpointError):
        resume(base, published, settings)


def test_a_fresh_optimizer_is_never_taken_for_a_resumed_one(tmp_path: Path, base: Path) -> None:
    """A state file that is intact but holds an optimizer that never stepped."""
    settings = settings_for(tmp_path, base)
    engine = make_engine(load_policy(base, settings), settings)
    train_batch(engine, batch(), 1)
    for state in engine.optimizer.state.values():
        state["step"].zero_()
    published = publish(engine, base, settings, 1)
    with pytest.raises(CheckpointError, match="step 0"):
        resume(base, published, settings)


def test_other_settings_do_not_fit_the_state(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base, *LORA)
    engine = make_engine(load_policy(base, settings), settings)
    train_batch(engine, batch(), 1)
    published = publish(engine, base, settings, 1)
    with pytest.raises(CheckpointError, match="rank 4, the settings say 8"):
        resume(base, published, settings_for(tmp_path, base, "trainer.method=lora", "trainer.lora.rank=8"))


def test_a_leftover_is_taken_only_for_the_same_batch(tmp_path: Path, base: Path) -> None:
    settings = settings_for(tmp_path, base)
    engine = make_engine(load_policy(base, settings), settings)
    train_batch(engine, batch(), 1)
    directory = Path(publish(engine, base, settings, 1).path)
    state = read_leftover(settings, (1, 1, 10))
    assert state is not None
    assert state.metrics == {"gradient_norm": 1.0}
    assert read_leftover(settings, (1, 2, 10)) is None, "another epoch may have other settings"
    assert not directory.exists()
    directory = Path(publish(engine, base, settings, 1).path)
    save_file({"x": torch.zeros(1)}, directory / "model.safetensors")
    assert read_leftover(settings, (1, 1, 10)) is None
    assert not directory.exists()


def test_a_model_that_changes_its_logits_is_refused(tmp_path: Path, base: Path) -> None:
    """The trainer computes ``head(hidden)``: with soft-capped or scaled logits its ratios would be wrong."""
    shutil.copytree(base, tmp_path / "scaled")
    file = tmp_path / "scaled" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"logits_scaling": 8.0}), encoding="utf-8")
    with pytest.raises(ConfigError, match="logits_scaling"):
        load_policy(tmp_path / "scaled", settings_for(tmp_path, base))


@pytest.mark.parametrize("shapes", [{"model.embed_tokens.weight": (3, 4)}, {"model.layers.9.mlp.up_proj.weight": (1,)}])
def test_a_model_with_other_tensors_is_refused(tmp_path: Path, base: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    policy = load_policy(base, settings_for(tmp_path, base))
    with pytest.raises(CheckpointError, match="another form"):
        check_tensors(policy.model, shapes, base)
