"""From what the model wrote to the code or the hint it meant. Any input is possible; every scan is linear."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.words import DesignFailure

PYTHON_NAMES = frozenset({"python", "python3", "py"})
_CLOSING_THINK = re.compile(r"</think(?:ing)?\s{0,8}>", re.IGNORECASE)
_OPENING_THINK = re.compile(r"\s*+<think(?:ing)?\s{0,8}>", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*+(`{3,}+)[ \t]*+([^`\s]*+)[^`]*+")
"""A fence line: ticks, language, rest. Possessive, so that a line that is none is refused without backtracking."""
_HINT_PREFIX = re.compile(r"[\s*_#>\"'`-]{0,16}hint[\s*_]{0,8}[:\u2013-][\s*_]{0,8}", re.IGNORECASE)
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "`": "`"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A designer's reply: code or the reason why there is none, never both."""

    code: str | None
    failure: DesignFailure | None


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block. ``complete`` is false when the reply ended, or another block began, before its closing line."""

    language: str
    body: str
    complete: bool

    def is_python(self) -> bool:
        """Marked as Python, or unmarked with a class in it."""
        if self.language:
            return self.language in PYTHON_NAMES
        return any(line.lstrip().startswith("class ") for line in self.body.split("\n"))


def parse_design(reply: str, *, cut: bool, max_bytes: int) -> Parsed:
    """Find the environment's code in a designer's reply.

    Thoughts are dropped, then the *last* complete Python fence counts: earlier ones are drafts. There is no repair:
    what the designer is trained on is what it wrote.

    Args:
        reply: the whole reply.
        cut: the sampler stopped at its token limit or was interrupted, not at the end of the reply.
        max_bytes: largest accepted code, in bytes of UTF-8.
    """
    if not reply.strip():
        return Parsed(None, DesignFailure.EMPTY)
    answer = without_thoughts(reply)
    python = [fence for fence in fences(answer) if fence.is_python() and fence.body.strip()]
    complete = [fence for fence in python if fence.complete]
    if complete:
        return _sized(complete[-1].body, max_bytes)
    if cut:
        return Parsed(None, DesignFailure.CUT)
    if python:
        return Parsed(None, DesignFailure.UNTERMINATED)
    return Parsed(None, DesignFailure.NO_CODE if answer.strip() else DesignFailure.EMPTY)


def hint_text(reply: str, max_words: int | None = None) -> str:
    """The hint in a hint writer's reply: one plain paragraph, or ``""`` when there is none.

    Thoughts, code fences, a JSON object around the hint, a ``Hint:`` label, surrounding quotes and control characters
    are removed.

    Args:
        reply: the whole reply.
        max_words: longer hints are cut here.
    """
    text = "\n".join(line for line in without_thoughts(reply).split("\n") if not _FENCE.fullmatch(line.rstrip("\r")))
    text = _from_json(text.strip())
    words = "".join(char if char.isprintable() else " " for char in text).split()
    text = " ".join(words)
    for _ in range(3):
        bare = _unquoted(text)
        label = _HINT_PREFIX.match(bare)
        stripped = bare[label.end() :].strip() if label else bare
        if stripped == text:
            break
        text = stripped
    return " ".join(text.split(" ")[:max_words]) if max_words is not None else text


def without_thoughts(reply: str) -> str:
    """``reply`` after its last closing think tag; nothing when it begins with a thought that never ends."""
    end = 0
    for tag in _CLOSING_THINK.finditer(reply):
        end = tag.end()
    answer = reply[end:]
    return "" if _OPENING_THINK.match(answer) else answer


def fences(text: str) -> Iterator[Fence]:
    """All backtick fences in order.

    A marked opening line inside a block begins a new one: a model that forgot to close its draft starts over like this,
    and no Python code has such a line.
    """
    ticks, language, body = 0, "", list[str]()
    for line in text.split("\n"):
        mark = _FENCE.fullmatch(line.rstrip("\r"))
        if mark is None:
            if ticks:
                body.append(line)
            continue
        if ticks and not mark[2] and len(mark[1]) >= ticks:
            yield Fence(language, "\n".join(body) + "\n", complete=True)
            ticks, body = 0, []
        elif ticks and not mark[2]:
            body.append(line)
        else:
            if ticks:
                yield Fence(language, "\n".join(body) + "\n", complete=False)
            ticks, language, body = len(mark[1]), mark[2].lower(), []
    if ticks:
        yield Fence(language, "\n".join(body) + "\n", complete=False)


def _sized(code: str, max_bytes: int) -> Parsed:
    # A lone surrogate has no UTF-8 form; it becomes a question mark so that the code can be stored.
    data = code.replace("\r\n", "\n").encode("utf-8", "replace")
    if len(data) > max_bytes:
        return Parsed(None, DesignFailure.TOO_LARGE)
    return Parsed(data.decode("utf-8"), None)


def _from_json(text: str) -> str:
    if not (text.startswith("{") and text.endswith("}")) or len(text) > 1 << 16:
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    hint = found.get("hint")
    return hint if isinstance(hint, str) else text


def _unquoted(text: str) -> str:
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1] and text.count(text[0]) <= 2:
        return text[1:-1].strip()
    return text
