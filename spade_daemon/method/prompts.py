"""What the model is told in its two roles. Texts stand in ``templates/``; this module only fills them in.

Every prompt is one user message: some chat templates know no system role. What never changes comes first, so that a
server with a prefix cache computes it once. Documents and remembered code are untrusted: they stand between marks that
they cannot close, without the chat templates' special tokens.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Literal

from schemas.words import Setting
from spade_daemon.method.outlines import request, worked_examples
from spade_daemon.method.skills import skill_line

Messages = tuple[tuple[str, str], ...]
"""(role, content) of each message."""
PromptSize = Literal["full", "compact", "outline"]
AgentPromptSize = Literal["full", "compact"]
Verdict = Literal["too easy", "too hard"]

EXAMPLE_CHARS = 2900
"""Longest code that a compact prompt shows as its example, in characters: about 750 tokens."""
_TEMPLATES = Path(__file__).parent / "templates"
_SPECIAL_TOKEN = re.compile(r"<(?=\|\w)")
_DOCUMENT_MARK = re.compile(r"<(?=/?document\b)", re.IGNORECASE)
_TICKS = re.compile(r"`{3,}+")
_REASONS: dict[Verdict, str] = {
    "too easy": "nearly every play wins it, so there is nothing to find out",
    "too hard": "hardly any play wins it, so there is nothing to learn from",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A remembered environment in a designer's prompt."""

    code: str
    description: str
    win_rate: float | None
    regret: float | None
    verdict: Verdict | None = None
    """Why it is a bad example; ``None`` for a good one."""


def designer_messages(
    *,
    size: PromptSize,
    setting: Setting,
    contract: str,
    skill: str,
    title: str,
    text: str,
    references: Sequence[Reference] = (),
    outline: str | None = None,
) -> Messages:
    """Ask for one environment.

    Args:
        size: ``full`` holds the rules of good design and all references with their code. ``compact`` is for small
            models with a short context: the contract, one example of at most ``EXAMPLE_CHARS`` characters, the request.
            ``outline`` is for models that cannot invent mechanics: worked examples, subject and ``outline``; without
            an outline it is ``compact``.
        setting: kind of environment.
        contract: what an environment is, in words.
        skill: what it should train.
        title: the document's title.
        text: the document, already cut to length; empty in a run without a corpus.
        references: remembered environments, good and bad.
        outline: what each method does, for the ``outline`` prompt.
    """
    if size == "outline" and outline is not None:
        return _outline_messages(title, text, outline, references)
    size = "full" if size == "full" else "compact"
    values = {"contract": contract.strip(), "skill": skill_line(skill), "document": _document(title, text)}
    if size == "full":
        values["references"] = _references(references)
    else:
        values["example"] = _example(setting, references)
        values["negatives"] = _short_negatives(references)
    return (("user", _fill(f"designer_{size}_{setting.value}.md", values)),)


def _outline_messages(title: str, text: str, outline: str, references: Sequence[Reference]) -> Messages:
    rules = _fill("designer_outline_games.md", {})
    turns: list[tuple[str, str]] = []
    for example in worked_examples():
        turns.append(("user", request(example.subject, example.outline)))
        turns.append(("assistant", _fenced(example.code)))
    turns[0] = ("user", f"{rules}\n\n{turns[0][1]}")
    made = [_one_line(item) for item in references]
    unlike = f"\n\nMade before, so write another one: {'; '.join(made)}." if made else ""
    subject = " ".join(_harmless(f"{title}. {text}").split())
    return (*turns, ("user", request(subject, outline) + unlike))


def hint_messages(*, setting: Setting, code: str, max_words: int) -> Messages:
    """Ask for the hint of the environment with this code: the approach in fewer than ``max_words`` words, no answer."""
    return (("user", _fill(f"hint_{setting.value}.md", {"code": _fenced(code), "max_words": str(max_words)})),)


def agent_messages(
    *, setting: Setting, observation: str, hint: str | None = None, size: AgentPromptSize = "full"
) -> Messages:
    """Open an episode: the rules of a reply, then the first observation, then the hint in the hinted arm.

    Both arms differ in nothing but the hint. ``compact`` shows a worked game as earlier turns instead of asking for
    reasoning; there is none for tool use.
    """
    seen = observation if hint is None else f"{observation}\n\nHINT: {hint}"
    if size == "compact" and setting is Setting.GAMES:
        worked = tomllib.loads(_read("agent_compact_games.toml"))
        turns = [(role, content) for role, content in worked["turns"]]
        opened = ("user", f"{worked['rules']}\n\n{turns[0][1]}")
        return (opened, *turns[1:], ("user", f"{worked['begin']}\n\n{seen}"))
    return (("user", _fill(f"agent_{setting.value}.md", {"observation": seen})),)


def example_code(setting: Setting) -> str:
    """The example of a compact prompt when nothing is remembered."""
    return _read(f"example_{setting.value}.txt")


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _fill(name: str, values: dict[str, str]) -> str:
    # Values are filled in once and never scanned again: a "$" in a document or in code means nothing.
    return Template(_read(name)).substitute(values).strip()


def _document(title: str, text: str) -> str:
    if not text.strip():
        return "(No document this time: choose the subject yourself, far from common puzzles.)"
    heading = " ".join(_harmless(title).split())
    return f"<document>\nTitle: {heading}\n\n{_harmless(text).strip()}\n</document>"


def _harmless(text: str) -> str:
    """``text`` without control characters, and with a space in whatever could close the marks or be a special token."""
    printable = "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)
    return _DOCUMENT_MARK.sub("< ", _SPECIAL_TOKEN.sub("< ", printable))


def _fenced(code: str) -> str:
    ticks = max((len(run) for run in _TICKS.findall(code)), default=2) + 1
    fence = "`" * ticks
    return f"{fence}python\n{_SPECIAL_TOKEN.sub('< ', code).strip()}\n{fence}"


def _example(setting: Setting, references: Sequence[Reference]) -> str:
    good = (item.code for item in references if item.verdict is None and len(item.code) <= EXAMPLE_CHARS)
    return _fenced(next(good, example_code(setting)))


def _short_negatives(references: Sequence[Reference]) -> str:
    bad = [f"Not like this one: {_one_line(item)}, {item.verdict}." for item in references if item.verdict is not None]
    return "".join(f"{line}\n" for line in bad)


def _references(references: Sequence[Reference]) -> str:
    good = [item for item in references if item.verdict is None]
    bad = [item for item in references if item.verdict is not None]
    parts: list[str] = []
    if good:
        parts.append(
            "# Environments that worked\n\nLearn from how they are built. Yours must be a new idea, not a variant."
        )
        parts += [f"{_one_line(item)} ({_figures(item)})\n\n{_fenced(item.code)}" for item in good]
    if bad:
        parts.append("# Environments that did not work")
        parts += [_bad_reference(item) for item in bad]
    return "".join(f"{part}\n\n" for part in parts)


def _bad_reference(item: Reference) -> str:
    reason = f"{item.verdict}: {_REASONS[item.verdict]}" if item.verdict is not None else ""
    return f"{_one_line(item)} ({_figures(item)}; {reason})\n\n{_fenced(item.code)}"


def _one_line(item: Reference) -> str:
    words = " ".join(_harmless(item.description).split())[:200].rstrip(" .")
    return words or "an environment without a description"


def _figures(item: Reference) -> str:
    if item.win_rate is None:
        return "not played yet"
    won = f"won in {item.win_rate:.0%} of the plays"
    return won if item.regret is None else f"{won}, a hint adds {item.regret:+.2f} to the mean return"
