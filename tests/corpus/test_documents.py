"""The documents that come with the program: enough of them, long enough, varied, none like another."""

from collections import Counter
from itertools import combinations

import pytest

from spade_daemon.corpus.store import DEFAULT_DOCUMENTS, Document, default_documents

SHARED_WORDS = 7
"""No run of this many words may stand in two documents."""


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return default_documents()


def test_there_are_enough_of_varied_domains(documents: list[Document]) -> None:
    assert len(documents) >= 64
    domains = {path.stem.split("-")[0] for path in DEFAULT_DOCUMENTS.glob("*.md")}
    assert len(domains) >= 30


def test_each_has_a_title_and_substance(documents: list[Document]) -> None:
    for document in documents:
        assert document.text.startswith(f"# {document.title}\n\n"), document.source
        assert 220 <= document.words <= 420, document.source
        assert document.text.count("\n\n") >= 4, document.source
        assert document.text.endswith("."), f"{document.source}: cut off"


def test_titles_and_contents_are_unique(documents: list[Document]) -> None:
    assert len({document.title for document in documents}) == len(documents)
    assert len({document.digest for document in documents}) == len(documents)


def test_no_two_share_a_long_run_of_words(documents: list[Document]) -> None:
    runs = {document.source: _runs(document.text) for document in documents}
    for (one, first), (two, second) in combinations(runs.items(), 2):
        assert not first & second, f"{one} and {two} share {sorted(first & second)[0]}"


def test_no_opening_is_a_pattern(documents: list[Document]) -> None:
    openings = Counter(" ".join(document.text.partition("\n\n")[2].split()[:3]) for document in documents)
    assert openings.most_common(1)[0][1] == 1, openings.most_common(1)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return set(zip(*(words[start:] for start in range(SHARED_WORDS)), strict=False))
