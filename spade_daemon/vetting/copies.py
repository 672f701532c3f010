"""How much of one program stands in another, whatever its names, numbers and texts are. Pure.

Code is cut into tokens by one regular expression and never parsed: generated code may be anything, and a parser can be
made to use gigabytes. Only bounded code comes here.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from functools import lru_cache

GRAM = 8
"""Tokens in one n-gram."""

_TOKENS = re.compile(
    r"""
    (?P<skip>\#[^\n]*|\\\n|\s+)
  | (?P<text>[rRbBuUfF]{0,2}(?:
        '''(?:[^\\]|\\.)*?''' | \"\"\"(?:[^\\]|\\.)*?\"\"\"
      | '(?:[^'\\\n]|\\.)*'     | "(?:[^"\\\n]|\\.)*" ))
  | (?P<number>\d[\w.]*)
  | (?P<name>\w+)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def normalised_tokens(code: str) -> list[str]:
    """Tokens with every name that is no keyword, every number and every text replaced by its kind."""
    tokens = []
    for match in _TOKENS.finditer(code):
        kind, text = match.lastgroup, match.group()
        if kind == "skip":
            continue
        tokens.append(text if kind == "sign" or keyword.iskeyword(text) else str(kind))
    return tokens


@lru_cache(maxsize=8192)
def _grams(code: str) -> frozenset[int]:
    """Hashes of all n-grams. Hashes of texts differ between processes, so they stay in this one."""
    tokens = normalised_tokens(code)
    return frozenset(hash(tuple(tokens[at : at + GRAM])) for at in range(max(1, len(tokens) - GRAM + 1)))


def similarity(code: str, other: str) -> float:
    """Share of n-grams in common, of the shorter of both: 1.0 for a renamed copy, also inside a longer text."""
    one, two = _grams(code), _grams(other)
    return len(one & two) / min(len(one), len(two))


def nearest_copy(code: str, known: Mapping[str, str]) -> tuple[str | None, float]:
    """The environment of ``known`` (id to code) that ``code`` has most in common with, and how much."""
    return max(
        ((environment, similarity(code, other)) for environment, other in known.items()),
        key=lambda found: found[1],
        default=(None, 0.0),
    )
