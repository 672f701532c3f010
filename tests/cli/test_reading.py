"""Commands that read a run: status, replay, events, env, episode, memory, schemas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from schemas.events import (
    PAYLOADS,
    DocumentSampled,
    EpisodeCompleted,
    IncidentRaised,
    RunStarted,
)
from spade_daemon import live
from spade_daemon.cli import memory as memory_command
from spade_daemon.cli.events import parse_since
from spade_daemon.errors import UserInputError
from spade_daemon.settings import Settings
from tests.cli.conftest import Spade, responding
from tests.cli.recorded import DESIGN, HINT, REFUSED, SAID, SEED, Recording
from tests.handlers.scripted import HashEmbedder
from tests.vetting.environments import GOOD, PROBE


@pytest.fixture(autouse=True)
def _recorded(recording: Recording) -> None:
    """Every test here reads the recorded run."""


def test_the_recording_has_every_type_of_event(recording: Recording) -> None:
    assert {stored.event.type for stored in recording.events} == set(PAYLOADS)
    assert recording.state.unexpected == 0


def test_status_in_words(spade: Spade) -> None:
    said = spade("status")
    assert said.code == 0
    for words in ("epoch 1", "policy version 1", "designs 1/2 accepted", "slots  0:free", "1:playing", "no_code 1"):
        assert words in said.out
    assert "the disk is [full]" in said.out and "the run is down" in said.out


def test_status_in_json(spade: Spade, recording: Recording) -> None:
    facts = spade("status", "--json").json
    assert (facts["sequence"], facts["policy"], facts["running"]) == (len(recording.events), 1, False)
    assert (facts["designs"], facts["accepted"], facts["rejections"]) == (2, 1, {"no_code": 1})
    assert facts["skills"]["Optimization"] == {
        "designed": 2,
        "accepted": 1,
        "rounds": 1,
        "regret": 0.5,
        "win_rate": 0.5,
    }
    assert facts["last_incident"]["message"] == "the disk is [full]"
    assert facts["metrics"] == {"loss": 0.125}
    assert facts["serving"] == {"s": 1} and facts["processes"] == [] and facts["log_bytes"] > 0


def test_replay_rebuilds_the_state(spade: Spade, recording: Recording) -> None:
    answer = spade("replay", "--json").json
    assert (answer["digest"], answer["sequence"]) == (recording.state.digest(), recording.state.sequence)
    assert (answer["live"], answer["agrees"]) == (None, None)
    assert "no running daemon" in spade("replay").out


def test_replay_to_a_sequence(spade: Spade, recording: Recording) -> None:
    sequence = recording.sequence(DocumentSampled)
    answer = spade("replay", "--to", str(sequence), "--json").json
    assert answer["sequence"] == sequence and answer["digest"] != recording.state.digest()


def test_replay_beyond_the_end_is_refused(spade: Spade, recording: Recording) -> None:
    end = len(recording.events)
    spade("replay", "--to", str(end + 1)).refused(2, str(end + 1), str(end))


def test_a_live_daemon_that_agrees(spade: Spade, run_settings: Settings, recording: Recording) -> None:
    with responding(run_settings, live.live_state(recording.state)):
        said = spade("replay")
        assert said.code == 0 and "the live daemon agrees" in said.out
        assert spade("replay", "--json").json["agrees"] is True


def test_a_live_daemon_that_differs_fails_the_command(
    spade: Spade, run_settings: Settings, recording: Recording
) -> None:
    wrong = live.live_state(recording.state).model_copy(update={"digest": "0" * 64})
    with responding(run_settings, wrong):
        said = spade("replay", "--json")
        assert (said.code, said.json["agrees"]) == (1, False)
        assert recording.state.digest() in said.err and len(said.err.splitlines()) == 1


def test_events_end_with_the_newest(spade: Spade, recording: Recording) -> None:
    said = spade("events", "tail", "-n", "3")
    assert [int(line.split()[0]) for line in said.lines] == [len(recording.events) - back for back in (2, 1, 0)]
    assert "run.stopped" in said.lines[-1] and "the disk is [full]" in said.lines[-2]
    assert len(spade("events", "tail", "-n", "1000").lines) == len(recording.events)
    assert spade("events", "tail", "-n", "0").lines == []


def test_every_event_is_one_line_in_words(spade: Spade, recording: Recording) -> None:
    lines = spade("events", "tail", "-n", "1000").lines
    for stored, line in zip(recording.events, lines, strict=True):
        assert line.split()[:1] == [str(stored.sequence)] and f" {stored.event.type} " in line
        assert len(line.split()) > 3


def test_events_by_type_environment_and_time(spade: Spade, recording: Recording) -> None:
    rows = [orjson.loads(line) for line in spade("events", "tail", "--type", EpisodeCompleted.type, "--json").lines]
    assert {row["type"] for row in rows} == {EpisodeCompleted.type} and len(rows) == 4
    both = spade("events", "tail", "--type", EpisodeCompleted.type, "--type", RunStarted.type, "--json").lines
    assert len(both) == 5
    of_one = [orjson.loads(line) for line in spade("events", "tail", "--environment", REFUSED, "--json").lines]
    assert {row["data"]["environment"] for row in of_one} == {REFUSED} and len(of_one) == 2
    assert len(spade("events", "tail", "--since", "1d", "-n", "1").lines) == len(recording.events)
    assert spade("events", "tail", "--since", "2100-01-01").lines == []


def test_one_event_in_full(spade: Spade, recording: Recording) -> None:
    sequence = recording.sequence(IncidentRaised)
    row = spade("events", "show", str(sequence), "--json").json
    assert (row["sequence"], row["data"]["message"]) == (sequence, "the disk is [full]")
    assert row["causation"] == recording.events[sequence - 2].event.id
    said = spade("events", "show", str(sequence))
    assert '"remedy": "free some"' in said.out


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10m", datetime(2026, 1, 1, 11, 50, tzinfo=UTC)),
        ("2h", datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("1d", datetime(2025, 12, 31, 12, tzinfo=UTC)),
        ("0s", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T02:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_moment(text: str, moment: datetime) -> None:
    assert parse_since(text, datetime(2026, 1, 1, 12, tzinfo=UTC)) == moment


@pytest.mark.parametrize("text", ["", "m", "10", "10w", "-5m", "yesterday", "99999999999d", "9" * 40 + "s"])
def test_no_moment(text: str) -> None:
    with pytest.raises(UserInputError, match="write an ISO time"):
        parse_since(text, datetime.now(UTC) - timedelta(seconds=1))


def test_environments(spade: Spade) -> None:
    rows = {row["environment"]: row for row in spade("env", "list", "--json").json}
    assert [rows[name]["verdict"] for name in (SEED, DESIGN, REFUSED)] == ["accepted", "accepted", "no_code"]
    assert (rows[DESIGN]["regret"], rows[DESIGN]["win_rate"], rows[DESIGN]["plays"]) == (0.5, 0.5, 2)
    assert {row["environment"] for row in spade("env", "list", "--accepted", "--json").json} == {SEED, DESIGN}
    one = spade("env", "list", "--skill", "Logical Deduction", "--json").json
    assert [row["environment"] for row in one] == [SEED]
    said = spade("env", "list")
    assert "Find a [leaking] pipe." in said.out and REFUSED in said.out


def test_one_environment(spade: Spade) -> None:
    row = spade("env", "show", DESIGN, "--json").json
    assert (row["code"], row["hint"], row["references"]) == (GOOD, HINT, [SEED])
    said = spade("env", "show", DESIGN)
    assert "class DigEnv" in said.out and f"hint: {HINT}" in said.out and f"written after {SEED}" in said.out
    assert spade("env", "show", REFUSED, "--json").json["code"] is None


def test_one_episode(spade: Spade) -> None:
    arguments = ("episode", "show", DESIGN, "--arm", "hinted", "--play", "1")
    answer = spade(*arguments, "--json").json
    assert answer["event"]["return_"] == 1.0
    assert [turn["action"] for turn in answer["record"]["turns"]] == ["\\boxed{dig 3}", None]
    said = spade(*arguments)
    for words in (SAID, f"hint: {HINT}", "turn 2", "nothing [really]", "3 tokens, 2 of them sampled"):
        assert words in said.out


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedder of the recording: a real one takes seconds to load."""
    monkeypatch.setattr(memory_command.Embedder, "load", lambda _: HashEmbedder())


@pytest.mark.usefixtures("hashes")
def test_the_memory_is_searched_by_meaning(spade: Spade) -> None:
    found = spade("memory", "search", "Dig up two chests.", "--json").json
    assert [row["id"] for row in found] == [DESIGN, SEED]
    assert found[0]["similarity"] == pytest.approx(1.0, abs=1e-5)
    assert len(spade("memory", "search", "x", "-n", "1", "--json").json) == 1
    filtered = spade("memory", "search", "x", "--skill", "Logical Deduction", "--json").json
    assert [row["id"] for row in filtered] == [SEED]
    assert [row["id"] for row in spade("memory", "search", "x", "--min-regret", "0.4", "--json").json] == [DESIGN]
    assert "Find a [leaking] pipe." in spade("memory", "search", "pipe").out


@pytest.mark.usefixtures("hashes")
def test_one_memory_and_the_count_of_all(spade: Spade, recording: Recording) -> None:
    row = spade("memory", "show", SEED, "--json").json
    assert (row["id"], row["code"]) == (SEED, PROBE)
    assert "class LeakEnv" in spade("memory", "show", SEED).out
    figures = spade("memory", "stats", "--json").json
    assert (figures["environments"], figures["measured"]) == (2, 1)
    assert figures["sequence"] == recording.state.sequence
    assert "environments" in spade("memory", "stats").out
    spade("memory", "show", "e-' OR 1=1").refused(2, "e-' OR 1=1", "spade env list")


def test_a_reader_with_another_embedder_destroys_nothing(spade: Spade, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(HashEmbedder):
        async def dimensions(self) -> int:
            return 3

    monkeypatch.setattr(memory_command.Embedder, "load", lambda _: Other())
    spade("memory", "stats").refused(2, "its columns", "memory.embedder")
    monkeypatch.setattr(memory_command.Embedder, "load", lambda _: HashEmbedder())
    assert spade("memory", "stats", "--json").json["environments"] == 2


def test_schemas_are_asyncapi_with_a_channel_an_event_type(spade: Spade) -> None:
    document = spade("schemas").json
    assert document["asyncapi"].startswith("3.")
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert addresses == {f"spade.main.{name}.>" for name in PAYLOADS}
    assert len(document["channels"]) == len(document["operations"]) == len(PAYLOADS)
    assert "regret_se" in orjson.dumps(document["components"]).decode()


def test_schemas_as_yaml_in_a_file(spade: Spade, tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    said = spade("schemas", "--yaml", "-o", str(path))
    assert said.code == 0 and "asyncapi: 3." in path.read_text()


def test_what_is_not_there_is_said_in_one_line(spade: Spade, recording: Recording) -> None:
    spade("events", "show", "0").refused(2, "no event 0", "spade events tail")
    spade("events", "show", str(len(recording.events) + 1)).refused(2, "no event")
    spade("events", "tail", "--type", "run.paused").refused(2, "'run.paused' is unknown", "run.started")
    spade("events", "tail", "--since", "soon").refused(2, "--since 'soon'", "10m")
    spade("env", "show", "e-ffffffffffff").refused(2, "e-ffffffffffff", "spade env list")
    spade("env", "play", "nothing").refused(2, "neither a file nor an environment")
    spade("env", "play", REFUSED).refused(2, "neither a file nor an environment")
    spade("episode", "show", DESIGN, "--round", "7").refused(2, f"no episode {DESIGN}.7.plain.0")
    spade("episode", "show", "not an id").refused(2, "no episode not an id.0.plain.0")
