"""Each check of the doctor finds what it is there for."""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from spade_daemon import doctor
from spade_daemon.errors import MissingPartError
from spade_daemon.log import server
from spade_daemon.settings import Settings
from tests.nats_server import settings_in


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path / "home")


def changed(settings: Settings, section: str, **values: Any) -> Settings:
    return settings.model_copy(update={section: getattr(settings, section).model_copy(update=values)})


def test_a_home_is_made_and_left_empty(settings: Settings) -> None:
    finding = doctor.check_home(settings)
    assert finding.ok and list(settings.home.iterdir()) == []
    assert settings.home.stat().st_mode & 0o077 == 0


def test_a_home_that_cannot_be_written(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = doctor.check_home(settings.model_copy(update={"home": tmp_path / "file" / "home"}))
    assert not finding.ok and "Not a directory" in finding.detail and "SPADE_HOME" in finding.remedy


def test_the_disk_must_hold_the_checkpoints(settings: Settings) -> None:
    assert doctor.check_disk(settings).ok
    greedy = changed(settings, "trainer", min_free_gb=1e9).model_copy(update={"profile": "cpu"})
    finding = doctor.check_disk(greedy)
    assert not finding.ok and "1000000008.0 GB wanted" in finding.detail and "keep_checkpoints" in finding.remedy


def test_the_logs_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_nats(settings).detail == str(server.nats_binary())

    def missing() -> Path:
        raise MissingPartError("nats-server is not installed")

    monkeypatch.setattr(server, "nats_binary", missing)
    assert not doctor.check_nats(settings).ok
    assert doctor.check_nats(changed(settings, "nats", url="nats://elsewhere:4222")).ok


def test_ports_that_others_hold(settings: Settings) -> None:
    assert doctor.check_ports(settings).ok
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", settings.nats.monitor_port))
        holder.listen()
        finding = doctor.check_ports(settings)
        assert not finding.ok and finding.detail == f"in use: nats.monitor_port {settings.nats.monitor_port}"
        elsewhere = changed(settings, "nats", url="nats://elsewhere:4222")
        assert doctor.check_ports(elsewhere).ok


@pytest.mark.parametrize(
    ("absent", "present", "ok", "word"),
    [
        (set(), set(), True, "extra cpu"),
        ({"vllm", "lancedb"}, set(), False, "missing: vllm, lancedb"),
        (set(), {"torchvision"}, False, "torchvision do not fit"),
    ],
)
def test_the_packages(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, absent: set[str], present: set[str], ok: bool, word: str
) -> None:
    companions = {"torchvision", "torchaudio", "torchcodec"}

    def find(name: str) -> object | None:
        return None if name in absent or name in companions - present else object()

    monkeypatch.setattr(importlib.util, "find_spec", find)
    finding = doctor.check_packages(settings)
    assert finding.ok is ok and word in finding.detail
    assert ok or "pip " in finding.remedy


@pytest.mark.parametrize(("gigabytes", "ok"), [(64, True), (2, False)])
def test_the_memory_of_the_host(settings: Settings, monkeypatch: pytest.MonkeyPatch, gigabytes: int, ok: bool) -> None:
    sizes = {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": gigabytes * 1_000_000}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert doctor.check_memory(settings).ok is ok


def test_the_walls_are_tried(settings: Settings) -> None:
    finding = doctor.check_sandbox(settings)
    assert finding.ok and "seccomp" in finding.detail
    refused = doctor.check_sandbox(changed(settings, "sandbox", min_walls=99))
    assert not refused.ok and "\n" not in refused.detail and "docs/sandbox.md" in refused.remedy


def test_what_is_checked_when(settings: Settings) -> None:
    before = [finding.part for finding in doctor.preflight(settings)]
    assert before == ["home", "disk", "nats-server", "ports", "packages"]
    assert {finding.part for finding in doctor.examine(settings, running=False)} == {*before, "memory", "sandbox"}
    assert "ports" not in {finding.part for finding in doctor.examine(settings, running=True)}
