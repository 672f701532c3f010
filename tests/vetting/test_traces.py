"""Traces: their return, and the first difference of two."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spade_daemon.vetting.traces import Exchange, Trace, clip, first_difference

WON = Trace(7, "go", (Exchange("a", "b", 0.0, False, False), Exchange("c", "d", 1.0, True, False)), ("a", "c"))

exchanges = st.builds(
    Exchange, st.text(max_size=3), st.text(max_size=3), st.floats(-1, 1), st.booleans(), st.booleans()
)
traces = st.builds(
    Trace,
    st.just(1),
    st.text(max_size=3),
    st.lists(exchanges, max_size=3).map(tuple),
    st.none() | st.just(("a",)),
    st.none() | st.just("crash"),
)


def test_only_termination_pays() -> None:
    assert WON.return_() == 1.0
    assert WON.won()
    cut = replace(WON, exchanges=(Exchange("a", "b", 1.0, False, True),))
    assert cut.return_() == 0.0
    assert not replace(WON, fault="crash").won()
    assert Trace(1).return_() == 0.0


def test_the_first_difference_is_named() -> None:
    other = replace(WON, exchanges=(WON.exchanges[0], replace(WON.exchanges[1], observation="e" * 500)))
    assert first_difference(WON, other) == f"step 2, observation: 'd' became {clip('e' * 500, 60)}"
    assert "ended earlier" in str(first_difference(WON, replace(WON, exchanges=WON.exchanges[:1])))
    assert "first observation" in str(first_difference(WON, replace(WON, observation="gone")))
    assert "solution" in str(first_difference(WON, replace(WON, solution=None)))
    assert "fault" in str(first_difference(WON, replace(WON, fault="crash")))


@given(traces, traces)
def test_difference_is_inequality(one: Trace, other: Trace) -> None:
    difference = first_difference(one, other)
    assert (difference is None) == (one == other)
    assert difference is None or "\n" not in difference
