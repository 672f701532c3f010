"""The store: idempotent by content, drawn without repeats, honest about damage."""

import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_daemon.corpus.store import Added, Corpus, Document, default_documents
from spade_daemon.errors import MissingPartError, UserInputError


def documents(*numbers: int) -> list[Document]:
    return [Document.of(f"# Number {n}\n\nThe document about {n}.", source=f"numbers.txt:{n}") for n in numbers]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus.open(tmp_path / "home" / "corpus.sqlite")


def test_a_document_comes_back_as_it_went_in(corpus: Corpus) -> None:
    (document,) = documents(7)
    corpus.add([document])
    assert corpus.get(document.digest) == document
    assert (document.title, document.words, document.source) == ("Number 7", 7, "numbers.txt:7")


def test_adding_again_changes_nothing(corpus: Corpus) -> None:
    assert corpus.add(documents(1, 2, 2)) == Added(2, 1)
    before = (corpus.stats(), list(corpus.digests()))
    assert corpus.add(documents(2, 1)) == Added(0, 2)
    assert (corpus.stats(), list(corpus.digests())) == before


def test_totals_are_sums(corpus: Corpus) -> None:
    batch = documents(*range(30))
    corpus.add(batch[:10])
    corpus.add(batch[5:])
    stats = corpus.stats()
    assert stats.documents == len(corpus) == 30
    assert stats.words == sum(document.words for document in batch)
    assert stats.bytes == sum(len(document.text.encode()) for document in batch)
    assert stats.stored > 0


def test_digests_come_in_the_order_of_adding(corpus: Corpus) -> None:
    batch = documents(*range(2500))
    corpus.add(batch)
    assert list(corpus.digests()) == [document.digest for document in batch]


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 40), seed=st.integers())
def test_a_pass_draws_each_document_once(size: int, seed: int) -> None:
    corpus = Corpus.open(Path(":memory:"))
    batch = documents(*range(size))
    corpus.add(batch)
    for turn in range(3):
        drawn = [corpus.sample(seed, turn * size + position) for position in range(size)]
        assert sorted(document.digest for document in drawn) == sorted(document.digest for document in batch)


def test_passes_and_seeds_have_orders_of_their_own(corpus: Corpus) -> None:
    corpus.add(documents(*range(20)))
    orders = {
        tuple(corpus.sample(seed, turn * 20 + i).digest for i in range(20)) for seed in range(4) for turn in range(4)
    }
    assert len(orders) == 16


def test_two_daemons_agree(tmp_path: Path) -> None:
    one, two = Corpus.open(tmp_path / "one.sqlite"), Corpus.open(tmp_path / "two.sqlite")
    one.add(documents(*range(50)))
    for number in range(50):
        two.add(documents(number))
    assert [one.sample(9, i) for i in range(120)] == [two.sample(9, i) for i in range(120)]


def test_an_empty_corpus_says_what_to_do(corpus: Corpus) -> None:
    with pytest.raises(MissingPartError, match="empty: add documents"):
        corpus.sample(0, 0)


def test_draws_are_not_negative(corpus: Corpus) -> None:
    corpus.add(documents(1))
    with pytest.raises(ValueError, match="counted from 0"):
        corpus.sample(0, -1)


@pytest.mark.parametrize("digest", ["0" * 64, "none", "", "é"])
def test_an_unknown_digest_is_an_error(corpus: Corpus, digest: str) -> None:
    with pytest.raises(UserInputError, match="has no document"):
        corpus.get(digest)


def test_the_shipped_documents_are_loaded_once(corpus: Corpus) -> None:
    assert corpus.ensure_default() == len(default_documents()) == len(corpus)
    assert corpus.ensure_default() == 0


def test_a_corpus_of_ones_own_stays_alone(corpus: Corpus) -> None:
    corpus.add(documents(1))
    assert corpus.ensure_default() == 0
    assert len(corpus) == 1


def test_a_failed_batch_leaves_nothing_behind(corpus: Corpus) -> None:
    broken = Document("zz", "t", "text", 1, "s:1")
    with pytest.raises(ValueError, match="hexadecimal"):
        corpus.add([*documents(1), broken])
    short = Document("00", "t", "text", 1, "s:1")
    with pytest.raises(UserInputError, match="CHECK constraint"):
        corpus.add([*documents(1), short])
    assert len(corpus) == 0
    assert corpus.add(documents(1)) == Added(1, 0)


def test_a_flipped_text_is_found(corpus: Corpus) -> None:
    (one, two) = documents(1, 2)
    corpus.add([one, two])
    with sqlite3.connect(corpus.path) as raw:
        raw.execute("UPDATE documents SET text = (SELECT text FROM documents WHERE ordinal = 1) WHERE ordinal = 0")
    with pytest.raises(UserInputError, match=r"from numbers\.txt:1 is damaged"):
        corpus.get(one.digest)
    with sqlite3.connect(corpus.path) as raw:
        raw.execute("UPDATE documents SET text = x'00' WHERE ordinal = 1")
    with pytest.raises(UserInputError, match="is damaged"):
        corpus.get(two.digest)


def test_documents_cannot_be_deleted_or_renumbered(corpus: Corpus) -> None:
    corpus.add(documents(1, 2))
    raw = sqlite3.connect(corpus.path)
    for statement in ("DELETE FROM documents", "UPDATE documents SET ordinal = 9 WHERE ordinal = 0"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            raw.execute(statement)


def test_what_is_not_a_corpus_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("this is not a database, but long enough to look like one" * 20)
    with pytest.raises(UserInputError, match="not a database"):
        Corpus.open(text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as raw:
        raw.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(UserInputError, match="something else"):
        Corpus.open(other)
    with pytest.raises(UserInputError, match="cannot open"):
        Corpus.open(text / "below" / "corpus.sqlite")
    with pytest.raises(UserInputError, match="cannot open"):
        Corpus.open(tmp_path)


def test_a_newer_schema_is_refused(corpus: Corpus) -> None:
    corpus.close()
    with sqlite3.connect(corpus.path) as raw:
        raw.execute("PRAGMA user_version = 99")
    with pytest.raises(UserInputError, match="schema 99"):
        Corpus.open(corpus.path)


def test_a_closed_corpus_is_an_error_not_a_crash(corpus: Corpus) -> None:
    corpus.close()
    corpus.close()
    with pytest.raises(UserInputError, match="closed"):
        len(corpus)


def test_threads_and_connections_add_the_same_documents_once(tmp_path: Path) -> None:
    path = tmp_path / "corpus.sqlite"
    shared = Corpus.open(path)
    results: list[Added] = []

    def work(corpus: Corpus) -> None:
        results.extend(corpus.add([document]) for document in documents(*range(25)))

    threads = [threading.Thread(target=work, args=(corpus,)) for corpus in (shared, shared, Corpus.open(path))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shared) == 25 == sum(result.added for result in results)
    assert len(results) == 75
