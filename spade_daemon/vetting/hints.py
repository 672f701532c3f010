"""The privileged hint must help without giving the game away: tidy it, and find literal answers in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

GRAM = 8
"""Consecutive words in common with the solution from which a hint recites it."""

_TOKEN = re.compile(r"[^\W_]+")
_BOX = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)
_FENCE = re.compile(r"```[^\n]*\n?")
_LABEL = re.compile(r"^\W*hint\W*:\W*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


def clean_hint(text: str, max_words: int) -> str:
    """The hint in one paragraph: without thinking, fences and label, cut at a sentence within ``max_words``.

    A first sentence that is too long is cut at the word. May be empty.
    """
    said = text.rpartition("</think>")[2]
    said = _LABEL.sub("", _FENCE.sub(" ", said).strip())
    words = said.split()
    kept = " ".join(words[:max_words])
    if len(words) > max_words and (ends := list(_SENTENCE_END.finditer(kept))):
        kept = kept[: ends[-1].end()]
    return kept.strip().strip('"').strip()


def hint_leak(hint: str, solution_actions: Sequence[str], first_observation: str) -> str | None:
    """Say what the hint gives away of one instance, or ``None``.

    What the first observation shows anyway (the legal actions) is no secret. A leak is: a whole action that is not
    shown; a value of an action, with a digit and at least two characters, that is not shown; the whole solution in
    order; or ``GRAM`` words in a row that stand in the solution.
    """
    said, shown = _tokens(hint), _tokens(first_observation)
    contents = [_tokens(_content(action)) for action in solution_actions]
    for content in contents:
        if content and _inside(content, said) and not _inside(content, shown):
            return f"the hint holds the action {' '.join(content)!r}"
    for value in (token for content in contents for token in content):
        if len(value) > 1 and any(sign.isdigit() for sign in value) and value in said and value not in shown:
            return f"the hint holds the value {value!r}"
    whole = [token for content in contents for token in content]
    if len(whole) > 1 and _inside(whole, said):
        return "the hint holds the whole solution in order"
    grams = set(_grams(whole))
    if recited := next((gram for gram in _grams(said) if gram in grams), None):
        return f"the hint recites the solution: {' '.join(recited)!r}"
    return None


def _content(action: str) -> str:
    box = _BOX.search(action)
    return box.group(1) if box else action


def _tokens(text: str) -> list[str]:
    return [token.casefold() for token in _TOKEN.findall(text)]


def _inside(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether the tokens of ``part`` stand in ``whole`` side by side."""
    size = len(part)
    return any(list(whole[at : at + size]) == list(part) for at in range(len(whole) - size + 1))


def _grams(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(tokens[at : at + GRAM]) for at in range(len(tokens) - GRAM + 1))
