"""Pure operations on the text of a document: one normal form, its digest, its title, its first words."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from itertools import islice

WORD = re.compile(r"\S+")
SENTENCE_END = re.compile(r"[.!?][\"')\]’”]*(?=\s|$)")
TITLE_CHARS = 120


def normalise(text: str) -> str:
    """The form in which texts are compared, stored and shown.

    Unicode NFC, line feeds only, no zero characters, no space at the end of a line, at most one blank line in a row,
    none at either end.
    """
    text = unicodedata.normalize("NFC", text.removeprefix("\ufeff"))
    text = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def digest_of(text: str) -> str:
    """SHA-256 of a normalised text, in hex: the identity of a document."""
    return sha256(text.encode()).hexdigest()


def count_words(text: str) -> int:
    """Number of whitespace-separated words."""
    return sum(len(line.split()) for line in text.split("\n"))


def title_of(text: str, fallback: str) -> str:
    """The Markdown heading a text begins with, else ``fallback``; one line of at most ``TITLE_CHARS`` characters."""
    first = text.lstrip()[: 4 * TITLE_CHARS].partition("\n")[0]
    heading = first.lstrip("#").strip() if first.startswith("#") else ""
    return printable(" ".join((heading or fallback).split()))[:TITLE_CHARS].rstrip()


def printable(text: str) -> str:
    """``text`` with a replacement character for each that a terminal or a log line should not get."""
    return "".join(char if char.isprintable() else "�" for char in text)


def cut(text: str, words: int) -> str:
    """The first ``words`` words of ``text`` with their line structure.

    When a sentence ends within the last tenth of what is kept, the cut is moved back to that end, so that a reader
    is not left in the middle of a thought. A text that is short enough comes back unchanged.
    """
    if words < 1:
        raise ValueError(f"cannot cut a text to {words} words: ask for at least 1")
    ends = [match.end() for match in islice(WORD.finditer(text), words + 1)]
    if len(ends) <= words:
        return text
    kept = text[: ends[words - 1]]
    near = ends[words - 1 - words // 10]
    last = max((match.end() for match in SENTENCE_END.finditer(kept, near - 1)), default=0)
    return kept[:last] if last >= near else kept
