"""Players that understand nothing: what each of them may see and does."""

from __future__ import annotations

import pytest

from schemas.words import Setting
from spade_daemon.vetting.policies import Actor, mixed, replay, shapes_of, trivial_actors
from spade_daemon.vetting.traces import Exchange

SOLUTIONS = {
    1: ("\\boxed{dig 17}", "\\boxed{paint red}"),
    2: ("\\boxed{dig 23}", "\\boxed{paint blue}"),
    3: ("\\boxed{dig 31}", "\\boxed{paint green}"),
}
OBSERVATIONS = [
    "Place 4 of 9. Use \\boxed{dig N}",
    "Place 5 of 9. Use \\boxed{dig N}",
    "Place 6 of 9. Use \\boxed{dig N}",
]


def players(seed: int) -> dict[str, list[Actor]]:
    found: dict[str, list[Actor]] = {}
    for name, actor in trivial_actors(seed, shapes_of(Setting.GAMES, SOLUTIONS, OBSERVATIONS)):
        found.setdefault(name, []).append(actor)
    return found


def past(turns: int) -> list[Exchange]:
    return [Exchange("a", "o", 0.0, False, False)] * turns


def test_nobody_knows_the_solution_of_the_seed_it_plays() -> None:
    actors = [actor for group in players(1).values() for actor in group]
    acts = {actor("Place 4", past(turn)) for actor in actors for turn in range(9)}
    assert not acts & set(SOLUTIONS[1])


def test_memorised_replays_the_others() -> None:
    games = [[actor("", past(turn)) for turn in range(3)] for actor in players(2)["memorised"]]
    assert games == [[*SOLUTIONS[1], None], [*SOLUTIONS[3], None]]


@pytest.mark.parametrize(
    ("name", "turn", "action"),
    [
        ("copy first 0", 0, "\\boxed{dig 47}"),
        ("copy last 0", 0, "\\boxed{dig 52}"),
        ("copy walk 0", 0, "\\boxed{dig 47}"),
        ("copy walk 0", 1, "\\boxed{dig 52}"),
        ("copy first 1", 0, "\\boxed{paint gold}"),
        ("copy box", 0, "\\boxed{dig 52}"),
    ],
)
def test_copying_takes_what_is_printed_for_this_instance_alone(name: str, turn: int, action: str) -> None:
    observation = "gold 47 of 9. Use \\boxed{dig N} or \\boxed{dig 52}"
    (actor,) = players(1)[name]
    assert actor(observation, past(turn)) == action


def test_random_play_repeats_itself_and_uses_what_is_shown() -> None:
    def run() -> list[str | None]:
        return [players(1)["random"][0]("Use \\boxed{jump}", past(turn)) for turn in range(1)] + [
            actor("Use \\boxed{jump}", past(0)) for actor in players(1)["random"]
        ]

    assert run() == run()
    assert set(run()) <= {"\\boxed{jump}", *SOLUTIONS[2], *SOLUTIONS[3]}


def test_replay_stops_and_mixed_depends_on_seed_and_turn_alone() -> None:
    assert replay(["a"])("", past(1)) is None
    assert [mixed("abc", 5)("x", past(turn)) for turn in range(9)] == [
        mixed("abc", 5)("y", past(turn)) for turn in range(9)
    ]


def test_players_of_tool_use_speak_its_language() -> None:
    actors = dict(trivial_actors(1, shapes_of(Setting.TOOL_USE, SOLUTIONS, OBSERVATIONS)))
    assert "<tool_call>" in (actors["echo"]("Find it.", ()) or "")
