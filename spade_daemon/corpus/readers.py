"""Files into texts, one at a time and in bounded memory. Whatever a file holds, a reader yields or says why not."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from spade_daemon.corpus.text import printable, title_of

MAX_BYTES = 16 << 20
"""Largest text taken as one document: a longer JSON line or Parquet value is skipped, a longer file is divided."""
PART_BYTES = 32 << 10
"""A file that is divided breaks at the first blank line after this: about 5000 words, what one prompt holds."""
PART_LIMIT = 256 << 10
"""Without a blank line it breaks at the end of a line after this."""
HEAD_BYTES = 8 << 10
TEXT_KEYS = ("orig_doc", "text")
PARQUET_ROWS = 64
BUFFER_BYTES = 1 << 20
"""Parquet column chunks are read in pieces of this size, so that a large row group need not fit in memory."""


class SkipReason(StrEnum):
    """Why something did not become a document."""

    NOT_TEXT = "not UTF-8 text"
    EMPTY = "empty"
    TOO_SHORT = "too short"
    TOO_LONG = "too long"
    BAD_JSON = "bad JSON"
    WRONG_TYPE = "wrong type"
    MISSING_KEY = "missing key"
    DAMAGED = "damaged file"
    UNKNOWN_SUFFIX = "unknown suffix"
    UNREADABLE = "unreadable"
    LINK = "symbolic link"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Found:
    """A text at ``line`` (for Parquet, the row; from 1). ``end`` is how many bytes of the file are read by now."""

    line: int
    end: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Something unusable at ``line``."""

    line: int
    end: int
    reason: SkipReason
    detail: str = ""


class UnusableFileError(Exception):
    """Nothing can be read from a file. The caller decides whether that ends the work or is one more thing skipped."""

    def __init__(self, reason: SkipReason, detail: str, remedy: str) -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail
        self.remedy = remedy


Items = Iterator[Found | Skip]


def read(path: Path) -> Items:
    """Texts of one file, by its suffix.

    Raises:
        UnusableFileError: missing, not a regular file, unreadable, of an unknown suffix, or not what its suffix says.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(READERS)
        raise UnusableFileError(SkipReason.UNKNOWN_SUFFIX, path.suffix or "none", f"convert it to one of {known}")
    try:
        # A pipe or a device would block or never end; it must be known before the file is opened.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnusableFileError(SkipReason.UNREADABLE, "not a regular file", "name a file or a folder")
        with path.open("rb") as file:
            yield from reader(path, file)
    except OSError as error:
        detail = error.strerror or type(error).__name__
        raise UnusableFileError(SkipReason.UNREADABLE, detail, "check the path and its rights") from error


def _read_text(path: Path, file: BinaryIO) -> Items:
    _refuse_binary(file)
    raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        file.seek(0)
        yield from _read_parts(path, file)
        return
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UnusableFileError(SkipReason.NOT_TEXT, f"line {line}", "convert it to UTF-8") from error
    yield Found(1, len(raw), title_of(text, path.stem), text)


def _read_parts(path: Path, file: BinaryIO) -> Items:
    lines: list[bytes] = []
    size = parts = end = 0
    first = 1
    for number, line, end in _lines(file):
        if line is None:
            yield Skip(number, end, SkipReason.TOO_LONG, f"a line of more than {MAX_BYTES >> 20} MB")
            continue
        blank = not line.strip()
        if not lines:
            first = number
        lines.append(line)
        size += len(line)
        if size >= PART_LIMIT or (blank and size >= PART_BYTES):
            parts += 1
            yield _part(path, lines, first, end, parts)
            lines, size = [], 0
    if lines:
        yield _part(path, lines, first, end, parts + 1)


def _part(path: Path, lines: list[bytes], first: int, end: int, number: int) -> Found | Skip:
    try:
        text = b"".join(lines).decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError:
        return Skip(first, end, SkipReason.NOT_TEXT, f"part of {len(lines)} lines")
    return Found(first, end, title_of(text, f"{path.stem}, part {number}"), text)


def _read_jsonl(path: Path, file: BinaryIO) -> Items:
    _refuse_binary(file)
    for number, line, end in _lines(file):
        if line is None:
            yield Skip(number, end, SkipReason.TOO_LONG, f"a line of more than {MAX_BYTES >> 20} MB")
        elif not line.strip():
            yield Skip(number, end, SkipReason.EMPTY, "blank line")
        else:
            yield _json_item(path, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, number, end)


def _json_item(path: Path, line: bytes, number: int, end: int) -> Found | Skip:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return Skip(number, end, SkipReason.NOT_TEXT, f"byte {error.start}")
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Skip(number, end, SkipReason.BAD_JSON, str(error))
    if not isinstance(value, dict):
        return Skip(number, end, SkipReason.WRONG_TYPE, f"{type(value).__name__} instead of an object")
    key = next((key for key in TEXT_KEYS if key in value), None)
    if key is None:
        return Skip(number, end, SkipReason.MISSING_KEY, " or ".join(TEXT_KEYS))
    text, title = value[key], value.get("title")
    if not isinstance(text, str):
        return Skip(number, end, SkipReason.WRONG_TYPE, f"{key} is {type(text).__name__}, not a string")
    fallback = title if isinstance(title, str) and title.strip() else f"{path.stem}, line {number}"
    return Found(number, end, title_of("" if fallback == title else text, fallback), text)


def _read_parquet(path: Path, file: BinaryIO) -> Items:
    size = path.stat().st_size
    row = end = 0
    try:
        with pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES) as table:
            text_name, names = _columns(table.schema_arrow)
            total = max(1, table.metadata.num_rows)
            for batch in table.iter_batches(batch_size=PARQUET_ROWS, columns=names):
                texts = _raw_values(batch.column(text_name))
                titles = _raw_values(batch.column("title")) if "title" in names else [None] * len(texts)
                for text, title in zip(texts, titles, strict=True):
                    row += 1
                    end = size * row // total
                    yield _parquet_item(path, text, title, row, end)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        detail = printable(str(error).partition("\n")[0])[:200]
        if row == 0:
            raise UnusableFileError(SkipReason.DAMAGED, detail, "check that it is a complete Parquet file") from error
        yield Skip(row + 1, end, SkipReason.DAMAGED, detail)


def _columns(schema: Any) -> tuple[str, list[str]]:
    """Name of the text column, and the columns to read."""
    name = next((key for key in TEXT_KEYS if schema.names.count(key) == 1), None)
    if name is None:
        raise UnusableFileError(SkipReason.MISSING_KEY, " or ".join(TEXT_KEYS), "rename the column that holds the text")
    if not _is_text(schema.field(name).type):
        detail = f"column {name} is {schema.field(name).type}, not a string"
        raise UnusableFileError(SkipReason.WRONG_TYPE, detail, "convert the column to strings")
    titled = schema.names.count("title") == 1 and _is_text(schema.field("title").type)
    return name, [name, "title"] if titled else [name]


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _raw_values(column: Any) -> list[bytes | None]:
    """Bytes, not strings: one value that is not UTF-8 must not cost the whole batch."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values


def _parquet_item(path: Path, raw: bytes | None, raw_title: bytes | None, row: int, end: int) -> Found | Skip:
    if raw is None:
        return Skip(row, end, SkipReason.EMPTY, "null")
    if len(raw) > MAX_BYTES:
        return Skip(row, end, SkipReason.TOO_LONG, f"a value of more than {MAX_BYTES >> 20} MB")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return Skip(row, end, SkipReason.NOT_TEXT, f"byte {error.start}")
    title = (raw_title or b"").decode(errors="replace").strip()
    return Found(row, end, title_of("" if title else text, title or f"{path.stem}, row {row}"), text)


def _refuse_binary(file: BinaryIO) -> None:
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if b"\0" in head:
        raise UnusableFileError(SkipReason.NOT_TEXT, "zero bytes: binary, or UTF-16", "convert it to UTF-8")


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None, int]]:
    """Number, content and end offset of each line; for one longer than ``MAX_BYTES``, ``None`` as its content."""
    number = end = 0
    while piece := file.readline(MAX_BYTES + 1):
        number += 1
        end += len(piece)
        line: bytes | None = piece
        while len(piece) > MAX_BYTES and not piece.endswith(b"\n"):
            line = None
            piece = file.readline(MAX_BYTES + 1)
            end += len(piece)
        yield number, line, end


READERS: dict[str, Callable[[Path, BinaryIO], Items]] = {
    ".txt": _read_text,
    ".md": _read_text,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
