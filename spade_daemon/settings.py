"""One typed tree of settings. Later wins: defaults, profile, TOML file, ``SPADE_…`` environment variables, ``--set``.

Every default of the project stands here or in a profile under ``presets/`` and nowhere else.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.words import Setting
from spade_daemon.errors import ConfigError

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0)]

GAME_SKILLS = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)
TOOL_SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)


class Section(BaseModel):
    """A frozen part of the tree; unknown names are refused, and so are infinity and not-a-number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NatsSettings(Section):
    """The log's server. Without ``url`` we start our own on loopback."""

    url: str | None = None
    host: str = "127.0.0.1"
    port: int = Field(4222, ge=1, le=65535)
    monitor_port: int = Field(8222, ge=1, le=65535)
    user: str = "spade"
    password: str | None = None
    """Without one, a random password is made once and kept in the home folder, readable by its owner alone."""
    sync: str = "always"
    """JetStream ``sync_interval``: only ``always`` lost no acknowledged event in a power cut."""
    replicas: int = Field(1, ge=1, le=5)
    max_payload: int = 8 << 20
    connect_timeout: Seconds = 60.0


class ModelSettings(Section):
    """The policy: one language model in both roles."""

    name: str = "qwen2.5-coder-0.5b"
    """A name of ``policy/models.py``, a local Hugging Face directory, or a hub id."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_length: int = Field(32768, ge=256)
    """Context length in tokens, of the server and of every trained sequence."""


class PolicySettings(Section):
    """The vLLM servers and how they are asked."""

    servers: tuple[str, ...] = ()
    """Base URLs of servers somebody else runs; empty: we start one on loopback."""
    port: int = Field(8000, ge=1, le=65535)
    device: Literal["cpu", "gpu"] = "cpu"
    kv_cache_mb: int = Field(1024, ge=64)
    """KV cache on a CPU; a GPU uses ``gpu_memory_utilization``."""
    gpu_memory_utilization: Share = 0.45
    tensor_parallel: int = Field(1, ge=1)
    threads: int = Field(2, ge=1)
    """OpenMP threads of a CPU server; they sleep while they wait."""
    max_sequences: int = Field(16, ge=1)
    start_timeout: Seconds = 600.0
    request_timeout: Seconds = 600.0
    admin_timeout: Seconds = 120.0
    retry_seconds: Seconds = 300.0
    """How long a request is tried again while no server answers."""
    canary_tolerance: float = Field(0.05, gt=0)
    """Largest log-probability difference between trainer and server on the canary after a swap."""
    extra_args: tuple[str, ...] = ()
    """Further arguments for vLLM, as its command line takes them."""


class CorpusSettings(Section):
    """Documents that ground the designer."""

    enabled: bool = True
    words: int = Field(4000, ge=20)
    """Longer documents are cut here (whitespace words)."""


class DesignerSettings(Section):
    """The designer's role."""

    setting: Setting = Setting.GAMES
    skills: tuple[str, ...] = GAME_SKILLS
    skills_per_window: int = Field(3, ge=1)
    """Skills active at a time; they rotate by generation of the slot."""
    prompt: Literal["full", "compact", "outline"] = "full"
    """``compact`` for short contexts; ``outline`` for models too small to invent mechanics of their own."""
    temperature: float = Field(1.0, gt=0, le=2)
    max_tokens: int = Field(8192, ge=64)
    positives: int = Field(2, ge=0)
    negatives: int = Field(1, ge=0)
    reward: Literal["regret", "blend", "solve_rate"] = "blend"
    invalid_reward: float = -0.5
    invalid_credit: Share = 0.0
    """Share of the way from ``invalid_reward`` to 0 that a refused design earns for the checks it passed: a designer
    that hardly ever succeeds still learns what runs better than what."""
    train: bool = True
    train_invalid: bool = True


class HintSettings(Section):
    """The privileged hint: written by the policy itself from the code (method 3.9)."""

    temperature: float = Field(0.3, ge=0, le=2)
    max_tokens: int = Field(256, ge=16)
    max_words: int = Field(100, ge=5)
    attempts: int = Field(3, ge=1)


class AgentSettings(Section):
    """The agent's role."""

    prompt: Literal["full", "compact"] = "full"
    """``compact`` shows a worked game and asks for an action alone: for models too small to reason in words."""
    plays: int = Field(8, ge=2)
    """Pairs of episodes in a round: as many seeds, each played plain and hinted."""
    temperature: float = Field(1.0, gt=0, le=2)
    max_turns: int = Field(25, ge=1)
    max_tokens_per_turn: int = Field(2048, ge=8)
    max_tokens: int = Field(16384, ge=64)
    """Budget of one trajectory, prompts and observations included."""
    attempts: int = Field(3, ge=1)
    """An episode with an infrastructure fault is begun again this often."""
    episode_timeout: Seconds = 1800.0
    """Hard deadline around a whole episode, cleanup included."""
    advantage: Literal["mean", "zscore"] = "mean"
    concurrency: int = Field(16, ge=1)
    """Episodes in flight in one daemon."""


class CurriculumSettings(Section):
    """What is made and played when."""

    slots: int = Field(8, ge=1)
    """Environments in flight: constant, carried by the log."""
    replay_rate: Share = 0.25
    """Chance that a free slot replays a remembered environment when enough designs succeed."""
    replay_when_dry: Share = 0.75
    """The chance when no design was accepted among the last ``dry_after``."""
    dry_after: int = Field(6, ge=1)
    max_policy_lag: int = Field(1, ge=0, le=8)
    """Versions by which the oldest token of an agent's group may lag behind the policy being trained. A design's reward
    comes late by nature: its age is bounded by the trust region alone."""
    seed: int = 0


class VetSettings(Section):
    """The gate (method 3)."""

    seeds: int = Field(5, ge=2)
    min_steps: int = Field(2, ge=1)
    max_trivial_rate: Share = 0.2
    max_code_bytes: int = 64_000
    max_observation_chars: int = 16_000
    max_copy_similarity: Share = 0.9
    """Share of normalised token n-grams in common with a remembered environment from which code is a copy."""


class MemorySettings(Section):
    """Remembered environments in LanceDB."""

    embedder: str = "all-MiniLM-L6-v2"
    """A name that a package ships, a local directory, or a hub id for sentence-transformers."""
    max_similarity: Share = 0.97
    """Cosine similarity to the nearest remembered environment from which a design is not novel."""


class SandboxSettings(Section):
    """Limits of one generated environment."""

    min_walls: int = Field(2, ge=1)
    """Independent walls that must each hold against every critical probe."""
    memory_mb: int = Field(256, ge=64)
    cpu_seconds: float = Field(20.0, gt=0)
    load_timeout: Seconds = 5.0
    step_timeout: Seconds = 5.0
    max_workers: int = Field(64, ge=1)


class LoraSettings(Section):
    """Low-rank training: the base stays frozen, merged weights are published."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    layers: int | None = None
    """Train only the last ``layers`` blocks: the rest needs no backward pass. ``None``: all."""


class TrainerSettings(Section):
    """The joint update of both roles (method 5)."""

    method: Literal["full", "lora"] = "full"
    lora: LoraSettings = LoraSettings()
    groups_per_batch: int = Field(8, ge=1)
    """Agent groups with a signal that make up one batch."""
    max_designs: int = Field(64, ge=0)
    """Most designer samples in one batch; valid designs go first."""
    max_wait_designs: int = Field(64, ge=1)
    """A batch also closes when this many designs have an outcome, so that a run of bad designs still teaches."""
    learning_rate: float = Field(1e-6, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.1, ge=0)
    gradient_clip: float = Field(1.0, gt=0)
    loss: Literal["dppo", "ppo", "cispo"] = "dppo"
    role_weight_designer: float = Field(1.0, ge=0)
    micro_batch_tokens: int = Field(4096, ge=128)
    zero_stage: Literal[0, 1, 2, 3] = 0
    offload: bool = False
    gradient_checkpointing: bool = True
    threads: int = Field(1, ge=1)
    processes: int = Field(1, ge=1)
    keep_checkpoints: int = Field(4, ge=2)
    min_free_gb: float = Field(5.0, ge=0)
    """A checkpoint is not begun with less free disk than this plus its own size."""
    max_checkpoints: int | None = None
    """Stop training after this policy version; ``None``: never."""


class LoggingSettings(Section):
    """Structured logs: JSON lines in files, a readable form on a terminal."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    max_mb: int = Field(50, ge=1)
    backups: int = Field(5, ge=1)


class Settings(Section):
    """Everything. See each section."""

    run: str = Field("main", pattern=r"^[A-Za-z0-9_-]{1,32}$")
    profile: str = "cpu"
    home: Path = Field(default_factory=lambda: _home("SPADE_HOME", "XDG_DATA_HOME", ".local/share"))
    """State of the runs: log store, corpus, memory, checkpoints, log files."""
    cache: Path = Field(default_factory=lambda: _home("SPADE_CACHE", "XDG_CACHE_HOME", ".cache"))
    """Models that were fetched and converted; may be deleted at any time."""
    nats: NatsSettings = NatsSettings()
    model: ModelSettings = ModelSettings()
    policy: PolicySettings = PolicySettings()
    corpus: CorpusSettings = CorpusSettings()
    designer: DesignerSettings = DesignerSettings()
    hint: HintSettings = HintSettings()
    agent: AgentSettings = AgentSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    vet: VetSettings = VetSettings()
    memory: MemorySettings = MemorySettings()
    sandbox: SandboxSettings = SandboxSettings()
    trainer: TrainerSettings = TrainerSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for role, tokens in (
            ("designer.max_tokens", self.designer.max_tokens),
            ("agent.max_tokens", self.agent.max_tokens),
        ):
            if tokens > self.model.max_length:
                raise ValueError(
                    f"{role} is {tokens}, more than model.max_length {self.model.max_length}: "
                    "lower it or raise model.max_length"
                )
        if self.agent.max_tokens_per_turn > self.agent.max_tokens:
            raise ValueError("agent.max_tokens_per_turn is more than agent.max_tokens: lower it")
        known = GAME_SKILLS if self.designer.setting is Setting.GAMES else TOOL_SKILLS
        if self.designer.setting is Setting.TOOL_USE and self.designer.skills == GAME_SKILLS:
            raise ValueError(f"designer.skills are those of games: for tool_use choose from {', '.join(known)}")
        return self

    def server_urls(self) -> tuple[str, ...]:
        """Base URLs of the policy servers."""
        return self.policy.servers or (f"http://127.0.0.1:{self.policy.port}",)

    def run_home(self) -> Path:
        """Folder of this run's projections, checkpoints and logs."""
        return self.home / "runs" / self.run


def _home(variable: str, xdg: str, fallback: str) -> Path:
    if explicit := os.environ.get(variable):
        return Path(explicit).expanduser().resolve()
    return Path(os.environ.get(xdg) or Path.home() / fallback) / "spade-daemon"


PRESETS = Path(__file__).parent / "presets"


def load(profile: str | None = None, file: Path | None = None, overrides: tuple[str, ...] = ()) -> Settings:
    """Read the settings from all sources.

    Args:
        profile: name of a TOML under ``presets/``; default ``SPADE_PROFILE``, else what ``file`` says, else ``cpu``.
        file: TOML of the user; default ``SPADE_CONFIG`` if set.
        overrides: ``section.name=value`` with a TOML value (a bare word is a string).

    Raises:
        ConfigError: one line with source, field, value and remedy.
    """
    if file is None and os.environ.get("SPADE_CONFIG"):
        file = Path(os.environ["SPADE_CONFIG"])
    user = _read(file) if file else {}
    name = profile or os.environ.get("SPADE_PROFILE") or user.get("profile") or "cpu"
    preset = PRESETS / f"{name}.toml"
    if not preset.is_file():
        known = ", ".join(sorted(path.stem for path in PRESETS.glob("*.toml")))
        raise ConfigError(f"profile {name!r} is unknown: choose one of {known}")
    tree = _merge(_read(preset), user | {"profile": name})
    tree = _merge(tree, _from_environment(os.environ))
    for override in overrides:
        tree = _merge(tree, _from_override(override))
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_one_line(error, file or preset)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read settings {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"settings {path} are not TOML: {error}") from error


def _merge(low: dict[str, Any], high: dict[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


RESERVED = {"SPADE_HOME", "SPADE_CACHE", "SPADE_PROFILE", "SPADE_CONFIG", "SPADE_BOOT"}


def _from_environment(environ: Any) -> dict[str, Any]:
    """``SPADE_TRAINER__LEARNING_RATE=1e-5`` sets ``trainer.learning_rate``; ``SPADE_RUN=x`` sets ``run``."""
    tree: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith("SPADE_") or name in RESERVED:
            continue
        dotted = name.removeprefix("SPADE_").lower().replace("__", ".")
        if dotted.split(".")[0] in Settings.model_fields:
            tree = _merge(tree, _from_override(f"{dotted}={text}"))
    return tree


def _from_override(override: str) -> dict[str, Any]:
    dotted, separator, text = override.partition("=")
    if not separator or not dotted.strip():
        raise ConfigError(f"--set {override!r}: write section.name=value")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for part in reversed(dotted.strip().split(".")):
        value = {part: value}
    return dict(value)


def _one_line(error: ValidationError, source: Path) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "settings"
    where = where if where.isprintable() else repr(where)
    value = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}{value}: {first['msg']}{more}; from {source}, SPADE_… variables or --set"
