"""Where settings come from, which source wins, and what a person reads when one is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.words import Setting
from spade_daemon.errors import ConfigError
from spade_daemon.settings import PRESETS, RESERVED, TOOL_SKILLS, Settings, load

NAMES = sorted(path.stem for path in PRESETS.glob("*.toml"))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ``SPADE_…`` of whoever runs the tests."""

    for name in list(os.environ):
        if name.startswith("SPADE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text("[curriculum]\nslots = 5\nseed = 7\n", encoding="utf-8")
    return path


def test_each_source_wins_over_those_below(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """defaults < profile < file < environment < --set"""
    assert Settings().curriculum.slots == 8
    assert load("cpu").curriculum.slots == 4
    assert load("cpu", file).curriculum.slots == 5
    monkeypatch.setenv("SPADE_CURRICULUM__SLOTS", "6")
    assert load("cpu", file).curriculum.slots == 6
    assert load("cpu", file, ("curriculum.slots=7",)).curriculum.slots == 7
    assert load("cpu", file, ("curriculum.slots=7", "curriculum.slots=9")).curriculum.slots == 9
    assert load("cpu", file).curriculum.seed == 7, "the rest of the section stays"


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_loads_and_names_itself(name: str) -> None:
    settings = load(name)
    assert settings.profile == name
    assert Settings.model_validate(settings.model_dump()) == settings
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def test_the_profile_is_chosen_by_argument_variable_file_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('profile = "gpu"\n', encoding="utf-8")
    assert load().profile == "cpu"
    assert load(None, path).policy.device == "gpu"
    monkeypatch.setenv("SPADE_PROFILE", "test")
    assert load(None, path).profile == "test"
    assert load("cpu", path).profile == "cpu"


def test_the_file_may_be_named_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADE_CONFIG", str(file))
    assert load("cpu").curriculum.seed == 7


@pytest.mark.parametrize(
    ("name", "text", "section", "field", "value"),
    [
        ("SPADE_TRAINER__LEARNING_RATE", "1e-5", "trainer", "learning_rate", 1e-5),
        ("SPADE_TRAINER__LORA__RANK", "3", "trainer", "lora", None),
        ("SPADE_MODEL__NAME", "qwen2.5", "model", "name", "qwen2.5"),
        ("SPADE_MODEL__NAME", "Qwen/Qwen3-4B", "model", "name", "Qwen/Qwen3-4B"),
        ("SPADE_CORPUS__ENABLED", "false", "corpus", "enabled", False),
        ("SPADE_POLICY__SERVERS", '["http://a:1"]', "policy", "servers", ("http://a:1",)),
    ],
)
def test_a_variable_sets_a_field(
    name: str, text: str, section: str, field: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    found = getattr(getattr(load("cpu"), section), field)
    if value is None:
        assert found.rank == 3
    else:
        assert found == value


def test_a_variable_sets_the_run_and_foreign_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADE_RUN", "second")
    monkeypatch.setenv("SPADE_BOOT", "b")
    monkeypatch.setenv("SPADE_NOBODY_KNOWS", "x")
    assert load("cpu").run == "second"
    assert {"SPADE_HOME", "SPADE_CACHE"} <= RESERVED


def test_home_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADE_HOME", str(tmp_path / "here"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    settings = load("cpu", None, ("run=r1",))
    assert settings.home == tmp_path / "here"
    assert settings.run_home() == tmp_path / "here" / "runs" / "r1"
    assert settings.cache == tmp_path / "xdg" / "spade-daemon"
    assert load("cpu", None, (f"home='{tmp_path}'",)).home == tmp_path


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("curriculum.slots=0", ("curriculum.slots = 0", "greater than or equal to 1")),
        ("curriculum.slots=many", ("curriculum.slots = 'many'", "valid integer")),
        ("curriculum.slotz=3", ("curriculum.slotz = 3", "not permitted")),
        ("nonsense=3", ("nonsense = 3", "not permitted")),
        ("curriculum=3", ("curriculum = 3",)),
        ("run=two words", ("run = 'two words'", "pattern")),
        ("trainer.loss=mse", ("trainer.loss = 'mse'", "dppo")),
        ("agent.temperature=nan", ("agent.temperature = nan",)),
        ("designer.invalid_reward=nan", ("designer.invalid_reward = nan", "finite")),
        ("trainer.learning_rate=inf", ("trainer.learning_rate = inf", "finite")),
        ("trainer.betas=[0.9, inf]", ("trainer.betas.1 = inf", "finite")),
        ("trainer.learning_rate=-1", ("trainer.learning_rate = -1", "greater than 0")),
        ("designer.setting=chess", ("designer.setting = 'chess'", "games")),
        ("designer.max_tokens=99999", ("designer.max_tokens is 99999", "lower it or raise model.max_length")),
        ("agent.max_tokens=99999", ("agent.max_tokens is 99999", "lower it or raise model.max_length")),
        ("agent.max_tokens_per_turn=1500", ("agent.max_tokens_per_turn is more than agent.max_tokens", "lower it")),
        ("designer.setting=tool_use", ("designer.skills are those of games", *TOOL_SKILLS)),
    ],
)
def test_a_wrong_value_is_one_line_with_field_value_and_remedy(override: str, words: tuple[str, ...]) -> None:
    extra = ("agent.max_tokens=1024",) if "per_turn" in override else ()
    with pytest.raises(ConfigError) as caught:
        load("cpu", None, (*extra, override))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    assert "--set" in message


def test_several_wrong_values_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"and 1 more"):
        load("cpu", None, ("curriculum.slots=0", "vet.seeds=0"))


@pytest.mark.parametrize("override", ["curriculum.slots", "=3", "  =3"])
def test_an_override_without_name_or_value_says_how_to_write_it(override: str) -> None:
    with pytest.raises(ConfigError, match=r"section\.name=value"):
        load("cpu", None, (override,))


def test_an_unknown_profile_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=f"'tpu' is unknown: choose one of {', '.join(NAMES)}"):
        load("tpu")


@pytest.mark.parametrize("name", ["../settings", "cpu/../cpu", ""])
def test_a_profile_is_a_name_and_no_path(name: str) -> None:
    if name:
        with pytest.raises(ConfigError):
            load(name)
    else:
        assert load(name).profile == "cpu"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"slots = ", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        (b"[curriculum]\nslots = 'x'\n", "curriculum.slots"),
        (b"curriculum = 3\n", "curriculum"),
        (b"profile = 3\n", "profile"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(None, path)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    if words != "profile":
        assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load("cpu", tmp_path / "nowhere.toml")


def test_tools_need_their_own_skills() -> None:
    chosen = load("cpu", None, ("designer.setting=tool_use", f"designer.skills={list(TOOL_SKILLS)}"))
    assert chosen.designer.setting is Setting.TOOL_USE


def test_the_servers_of_others_replace_our_own() -> None:
    assert load("cpu", None, ("policy.port=1234",)).server_urls() == ("http://127.0.0.1:1234",)
    assert load("cpu", None, ("policy.servers=['http://a:1']",)).server_urls() == ("http://a:1",)


@given(st.text(max_size=40), st.text(max_size=40))
@limits(max_examples=150, deadline=None)
def test_any_override_is_taken_or_refused_in_one_line(name: str, value: str) -> None:
    try:
        load("cpu", None, (f"{name}={value}",))
    except ConfigError as error:
        assert "\n" not in str(error)


@given(st.sampled_from(["model.name", "nats.user", "trainer.learning_rate", "policy.servers"]), st.text(max_size=60))
@limits(max_examples=150, deadline=None)
def test_any_value_of_a_real_field_is_taken_or_refused_in_one_line(name: str, value: str) -> None:
    try:
        load("cpu", None, (f"{name}={value}",))
    except ConfigError as error:
        assert "\n" not in str(error)
