"""The corpus on disk: one SQLite file, documents by content digest, sampled by a pure function of seed and index."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Self

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_random

from spade_daemon.corpus.permutation import permute
from spade_daemon.corpus.text import count_words, digest_of, normalise, title_of
from spade_daemon.errors import MissingPartError, UserInputError

SCHEMA_VERSION = 1
DEFAULT_DOCUMENTS = Path(__file__).parent / "documents"
BUSY_SECONDS = 60.0
PAGE_BYTES = 16384
"""Of a new file. A compressed document is a few kilobytes; with pages of 4096 most of them would stay half empty."""

# Ordinals are 0, 1, 2, … without a gap: sampling counts on it, so nothing is ever deleted or renumbered.
SCHEMA = """
CREATE TABLE documents (
    ordinal INTEGER PRIMARY KEY CHECK (ordinal >= 0),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    title TEXT NOT NULL,
    source TEXT NOT NULL,
    words INTEGER NOT NULL,
    text BLOB NOT NULL
);
CREATE TABLE totals (
    id INTEGER PRIMARY KEY CHECK (id = 0), words INTEGER NOT NULL, bytes INTEGER NOT NULL, stored INTEGER NOT NULL
);
INSERT INTO totals VALUES (0, 0, 0, 0);
CREATE TRIGGER documents_stay BEFORE DELETE ON documents BEGIN SELECT RAISE(ABORT, 'documents are never deleted'); END;
CREATE TRIGGER ordinals_stay BEFORE UPDATE OF ordinal, digest ON documents
BEGIN SELECT RAISE(ABORT, 'documents are never renumbered'); END;
"""
INSERT = """
INSERT INTO documents (ordinal, digest, title, source, words, text)
VALUES ((SELECT coalesce(max(ordinal), -1) + 1 FROM documents), ?, ?, ?, ?, ?)
ON CONFLICT (digest) DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Document:
    """One text. Make it with ``Document.of``, which keeps the fields in step."""

    digest: str
    """SHA-256 of ``text``, in hex."""
    title: str
    text: str
    """Normalised, see ``text.normalise``."""
    words: int
    source: str
    """Where it came from: ``file:line`` (for Parquet, the row), counted from 1."""

    @classmethod
    def of(cls, text: str, *, source: str, title: str | None = None) -> Self:
        """Normalise ``text`` and derive the rest; without ``title``, a leading heading or the source is the title."""
        clean = normalise(text)
        named = title_of("", title or "") or title_of(clean, source)
        return cls(digest_of(clean), named, clean, count_words(clean), source)


@dataclass(frozen=True, slots=True)
class Added:
    """What became of documents that were handed in."""

    added: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """Size of a corpus. ``bytes`` is UTF-8 text, ``stored`` the same compressed."""

    documents: int
    words: int
    bytes: int
    stored: int


class Corpus:
    """Documents that ground the designer; safe to share between threads, and one file between processes.

    Every method raises ``UserInputError`` when the file cannot be read or written (damage, a full disk).
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use ``Corpus.open``."""
        self._connection = connection
        self._lock = RLock()
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the corpus at ``path``; make it, with its folder, when there is none.

        Raises:
            UserInputError: not a corpus, a corpus of a newer version, or no right to read and write there.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise UserInputError(f"cannot open corpus {path}: {error}: check the path and its rights") from error
        corpus = cls(connection, path)
        try:
            corpus._prepare()
        except BaseException:
            connection.close()
            raise
        return corpus

    def _prepare(self) -> None:
        with self._access():
            self._connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            self._connection.execute("PRAGMA synchronous = FULL")
            if self._connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                self._create()
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA_VERSION:
                raise UserInputError(
                    f"corpus {self.path} has schema {version}, this program knows {SCHEMA_VERSION}: "
                    "use the version of spade-daemon that wrote it, or another home folder"
                )
            # Writing it again each time heals a process that died between the two steps; it is a no-op once done.
            self._write_ahead()
            self._connection.execute("SELECT ordinal, digest, title, source, words, text FROM documents LIMIT 0")

    @retry(
        retry=retry_if_exception_type(sqlite3.OperationalError),
        stop=stop_after_delay(BUSY_SECONDS),
        wait=wait_random(0.01, 0.2),
        reraise=True,
    )
    def _write_ahead(self) -> None:
        """Switch the journal. SQLite does not wait for others here, whatever its timeout says: we do."""
        self._connection.execute("PRAGMA journal_mode = WAL")

    def _create(self) -> None:
        with self._writing():
            if self._connection.execute("PRAGMA user_version").fetchone()[0] != 0:
                return
            if self._connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                raise UserInputError(f"{self.path} is a database of something else: choose another path for the corpus")
            for statement in _statements(SCHEMA):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def close(self) -> None:
        """Release the file; closing twice is harmless."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Number of documents, in O(log n)."""
        with self._access():
            row = self._connection.execute("SELECT coalesce(max(ordinal), -1) + 1 FROM documents").fetchone()
        return int(row[0])

    def stats(self) -> CorpusStats:
        """Totals, kept up with every addition: no scan."""
        with self._access():
            words, size, stored = self._connection.execute("SELECT words, bytes, stored FROM totals").fetchone()
        return CorpusStats(len(self), words, size, stored)

    def digests(self) -> Iterator[str]:
        """Digests of all documents in the order in which they were added."""
        last = -1
        while True:
            with self._access():
                rows = self._connection.execute(
                    "SELECT ordinal, digest FROM documents WHERE ordinal > ? ORDER BY ordinal LIMIT 1000", (last,)
                ).fetchall()
            if not rows:
                return
            yield from (bytes(digest).hex() for _, digest in rows)
            last = rows[-1][0]

    def add(self, documents: Iterable[Document]) -> Added:
        """Add what is not there yet, in one transaction: all of it or, after a crash, nothing."""
        batch = [(document, document.text.encode()) for document in documents]
        rows = [
            (bytes.fromhex(document.digest), document.title, document.source, document.words, zlib.compress(raw))
            for document, raw in batch
        ]
        added = words = size = stored = 0
        with self._access(), self._writing():
            for row, (document, raw) in zip(rows, batch, strict=True):
                if self._connection.execute(INSERT, row).rowcount == 1:
                    added, words = added + 1, words + document.words
                    size, stored = size + len(raw), stored + len(row[4])
            self._connection.execute(
                "UPDATE totals SET words = words + ?, bytes = bytes + ?, stored = stored + ?", (words, size, stored)
            )
        return Added(added, len(rows) - added)

    def get(self, digest: str) -> Document:
        """The document with this digest.

        Raises:
            UserInputError: there is none, or its text no longer matches its digest.
        """
        try:
            key = bytes.fromhex(digest)
        except ValueError:
            key = b""
        return self._fetch("digest = ?", key, f"document {digest[:80]!r}")

    def sample(self, seed: int, index: int) -> Document:
        """The ``index``-th document that a run with ``seed`` draws, in O(log n).

        A pure function of the documents in their order, ``seed`` and ``index``: daemons that share a corpus agree.
        Each pass over the corpus draws every document once, in an order of its own. Adding documents changes all
        later draws, so what was drawn is to be recorded, never computed again.

        Raises:
            MissingPartError: the corpus is empty.
            ValueError: ``index`` is negative.
        """
        size = len(self)
        if size == 0:
            raise MissingPartError(f"corpus {self.path} is empty: add documents, or set corpus.enabled = false")
        if index < 0:
            raise ValueError(f"draws are counted from 0, not {index}")
        turn, position = divmod(index, size)
        key = bytes.fromhex(digest_of(f"{seed}/{turn}"))
        return self._fetch("ordinal = ?", permute(position, size, key), f"document of draw {index}")

    def ensure_default(self) -> int:
        """Fill an empty corpus with the documents that come with the program; return how many were added.

        A corpus that holds anything is left alone: a person's own choice of documents stands.
        """
        if len(self):
            return 0
        return self.add(default_documents()).added

    def _fetch(self, where: str, value: int | bytes, what: str) -> Document:
        query = f"SELECT digest, title, source, words, text FROM documents WHERE {where}"
        with self._access():
            row = self._connection.execute(query, (value,)).fetchone()
        if row is None:
            raise UserInputError(f"corpus {self.path} has no {what}: see which there are, or add it")
        digest, title, source, words, packed = row
        try:
            text = zlib.decompress(packed).decode()
        except (zlib.error, UnicodeDecodeError):
            text = ""
        if digest_of(text) != bytes(digest).hex():
            raise UserInputError(f"corpus {self.path}: {what} from {source} is damaged: restore the file from a copy")
        return Document(bytes(digest).hex(), title, text, words, source)

    @contextmanager
    def _access(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise UserInputError(f"corpus {self.path}: {error}: check the file, its rights and the disk") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def default_documents() -> list[Document]:
    """The documents that come with the program, by name."""
    files = sorted(DEFAULT_DOCUMENTS.glob("*.md"))
    if not files:
        raise MissingPartError(f"no documents in {DEFAULT_DOCUMENTS}: install spade-daemon again")
    return [Document.of(file.read_text(encoding="utf-8"), source=f"default/{file.name}:1") for file in files]


def _statements(script: str) -> Iterator[str]:
    """Split at complete statements: ``executescript`` would commit the open transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
