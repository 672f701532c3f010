"""Documents from files and folders into a corpus: streamed, in batches, safe to break off and to repeat."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from spade_daemon.corpus.readers import Found, Skip, SkipReason, UnusableFileError, read
from spade_daemon.corpus.store import Corpus, Document
from spade_daemon.corpus.text import printable
from spade_daemon.errors import UserInputError

log = structlog.get_logger()

MIN_WORDS = 20
BATCH_DOCUMENTS = 256
BATCH_BYTES = 8 << 20
MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class Example:
    """One thing that was skipped. ``where`` is ``file:line``, or the file when all of it was skipped."""

    where: str
    reason: SkipReason
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What an ingest did, so far or in the end. ``bytes`` counts what was read of the files."""

    added: int
    duplicates: int
    skipped: Mapping[SkipReason, int]
    examples: tuple[Example, ...]
    """The first ``MAX_EXAMPLES`` that were skipped."""
    files: int
    bytes: int
    seconds: float


Progress = Callable[[Path, Report], None]
"""Told the current file and the report so far, after each batch is safe and at the end of each file."""


def ingest(corpus: Corpus, paths: Iterable[Path], progress: Progress | None = None) -> Report:
    """Add every usable text under ``paths`` to ``corpus``.

    Files are ``.txt`` and ``.md`` (one document; divided when very large), ``.jsonl`` and ``.parquet`` (``orig_doc``
    or ``text``, optionally ``title``). Folders are walked in order of names; hidden entries and symbolic links inside
    them are passed over. Each batch is one transaction: a crash loses the batch at hand, and running again adds
    exactly what is missing.

    Raises:
        UserInputError: a path that was named directly cannot be used at all. What was added before stays.
    """
    work = _Ingest(corpus, progress)
    for path in _existing(paths):
        if path.is_dir():
            for entry in _walk(path):
                work.take_found(entry)
        else:
            work.take_named(path)
    report = work.report()
    skipped = {str(reason): count for reason, count in report.skipped.items()}
    log.info("corpus ingested", added=report.added, duplicates=report.duplicates, skipped=skipped)
    return report


@dataclass
class _Ingest:
    """The running count and the batch at hand."""

    corpus: Corpus
    progress: Progress | None
    began: float = field(default_factory=time.monotonic)
    added: int = 0
    duplicates: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes_here: int = 0
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)
    batch: list[Document] = field(default_factory=list)
    batch_bytes: int = 0

    def take_named(self, path: Path) -> None:
        """All of a file that a person named."""
        try:
            self._take(path)
        except UnusableFileError as error:
            raise UserInputError(f"cannot use {_shown(path)}: {error}: {error.remedy}") from error

    def take_found(self, entry: Path | Example) -> None:
        """All of a file that lay in a folder, or what kept it from being read."""
        if isinstance(entry, Example):
            self._skip(entry)
            return
        try:
            self._take(entry)
        except UnusableFileError as error:
            self._skip(Example(_shown(entry), error.reason, error.detail))

    def report(self) -> Report:
        """The count so far."""
        return Report(
            added=self.added,
            duplicates=self.duplicates,
            skipped=dict(self.skipped),
            examples=tuple(self.examples),
            files=self.files,
            bytes=self.bytes_before + self.bytes_here,
            seconds=time.monotonic() - self.began,
        )

    def _take(self, path: Path) -> None:
        self.files += 1
        try:
            for item in read(path):
                self.bytes_here = item.end
                self._take_item(path, item)
        finally:
            self.bytes_before, self.bytes_here = self.bytes_before + self.bytes_here, 0
        self._commit(path)

    def _take_item(self, path: Path, item: Found | Skip) -> None:
        where = f"{_shown(path)}:{item.line}"
        if isinstance(item, Skip):
            self._skip(Example(where, item.reason, item.detail))
            return
        document = Document.of(item.text, source=where, title=item.title)
        if document.words < MIN_WORDS:
            reason = SkipReason.TOO_SHORT if document.words else SkipReason.EMPTY
            self._skip(Example(where, reason, f"{document.words} words, fewer than {MIN_WORDS}"))
            return
        self.batch.append(document)
        self.batch_bytes += len(document.text)
        if len(self.batch) >= BATCH_DOCUMENTS or self.batch_bytes >= BATCH_BYTES:
            self._commit(path)

    def _commit(self, path: Path) -> None:
        if self.batch:
            result = self.corpus.add(self.batch)
            self.added += result.added
            self.duplicates += result.duplicates
            self.batch, self.batch_bytes = [], 0
        if self.progress is not None:
            self.progress(path, self.report())

    def _skip(self, example: Example) -> None:
        self.skipped[example.reason] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)


def _existing(paths: Iterable[Path]) -> list[Path]:
    """All the paths, checked before the first is read: a typing error should not cost an hour."""
    named = list(paths)
    for path in named:
        try:
            path.stat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserInputError(f"cannot use {_shown(path)}: {reason}: check the path and its rights") from error
    return named


def _walk(folder: Path) -> Iterator[Path | Example]:
    """Files below ``folder`` in a fixed order; links are not followed, so there is no loop and no way out."""
    failures: list[OSError] = []
    for root, folders, files in os.walk(folder, onerror=failures.append):
        regular = set(files)
        for name in sorted(folders + files):
            path = Path(root, name)
            if name.startswith("."):
                yield Example(_shown(path), SkipReason.HIDDEN, "")
            elif path.is_symlink():
                yield Example(_shown(path), SkipReason.LINK, "name it directly if it is wanted")
            elif name in regular:
                yield path
        folders[:] = sorted(name for name in folders if not name.startswith("."))
    for error in failures:
        if Path(error.filename) == folder:
            raise UserInputError(f"cannot use {_shown(folder)}: {error.strerror}: check its rights")
        yield Example(_shown(Path(error.filename)), SkipReason.UNREADABLE, error.strerror or "")


def _shown(path: Path) -> str:
    """The path as printable text: a name in a Unix folder may hold any bytes."""
    return printable(os.fsencode(path).decode(errors="replace"))
