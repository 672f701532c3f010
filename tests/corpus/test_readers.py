"""Readers: any bytes in, texts or reasons out, with the right line."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spade_daemon.corpus import readers
from spade_daemon.corpus.readers import Found, Skip, SkipReason, UnusableFileError, read


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def texts(path: Path) -> list[tuple[int, str]]:
    return [(item.line, item.text) for item in read(path) if isinstance(item, Found)]


def skips(path: Path) -> list[tuple[int, SkipReason]]:
    return [(item.line, item.reason) for item in read(path) if isinstance(item, Skip)]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_BYTES", 200)
    monkeypatch.setattr(readers, "PART_BYTES", 40)
    monkeypatch.setattr(readers, "PART_LIMIT", 120)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".txt", ".md", ".jsonl", ".parquet"]))
@example(content=b"PAR1" + bytes(40) + b"PAR1", suffix=".parquet")
@example(content=b"[" * 5000, suffix=".jsonl")
@example(content=b'{"text": "\\ud800"}', suffix=".jsonl")
@example(content=b'{"text": 1e999}\n{"text": NaN}\n"\n', suffix=".jsonl")
def test_no_bytes_crash_a_reader(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), f"x{suffix}", content)
        try:
            items = list(read(path))
        except UnusableFileError as error:
            assert error.remedy and "\n" not in str(error)
            return
        assert all(item.line >= 1 and 0 <= item.end <= len(content) for item in items)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_damaged_parquet_file_never_crashes(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.parquet")
        pq.write_table(pa.table({"text": [f"text {n}" for n in range(50)]}), path, row_group_size=10)
        content = bytearray(path.read_bytes())
        for place in data.draw(st.lists(st.integers(4, len(content) - 1), min_size=1, max_size=5)):
            content[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        try:
            items = list(read(path))
        except UnusableFileError:
            return
        assert len(items) <= 10_000


def test_a_text_is_one_document(tmp_path: Path) -> None:
    path = write(tmp_path, "tides.md", b"\xef\xbb\xbf# Tides\r\n\r\nTwice a day.")
    (item,) = read(path)
    assert item == Found(1, path.stat().st_size, "Tides", "# Tides\r\n\r\nTwice a day.")


def test_each_bad_line_is_named(tmp_path: Path) -> None:
    lines = [
        b'\xef\xbb\xbf{"text": "one", "title": "First"}',
        b"",
        b'{"text": "two"',
        b'["a list"]',
        b'{"txt": "no key"}',
        b'{"text": 5}',
        b'{"text": "caf\xe9"}',
        b'{"text": "unused", "orig_doc": "three"}',
        b"null",
    ]
    path = write(tmp_path, "x.jsonl", b"\n".join(lines))
    assert texts(path) == [(1, "one"), (8, "three")]
    assert skips(path) == [
        (2, SkipReason.EMPTY),
        (3, SkipReason.BAD_JSON),
        (4, SkipReason.WRONG_TYPE),
        (5, SkipReason.MISSING_KEY),
        (6, SkipReason.WRONG_TYPE),
        (7, SkipReason.NOT_TEXT),
        (9, SkipReason.WRONG_TYPE),
    ]
    titles = [item.title for item in read(path) if isinstance(item, Found)]
    assert titles == ["First", "x, line 8"]


@pytest.mark.usefixtures("small_limits")
def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    lines = [b'{"text": "a"}', b'{"text": "' + b"x" * 5000 + b'"}', b'{"text": "b"}']
    path = write(tmp_path, "x.jsonl", b"\n".join(lines))
    assert texts(path) == [(1, "a"), (3, "b")]
    assert skips(path) == [(2, SkipReason.TOO_LONG)]
    assert [item.end for item in read(path)][-1] == path.stat().st_size


@pytest.mark.usefixtures("small_limits")
def test_a_line_of_just_the_limit_is_taken(tmp_path: Path) -> None:
    line = b'{"text": "' + b"x" * 188 + b'"}'
    assert len(line) == 200
    assert len(texts(write(tmp_path, "a.jsonl", line + b"\n" + line))) == 2
    assert skips(write(tmp_path, "b.jsonl", b" " + line + b"\n")) == [(1, SkipReason.TOO_LONG)]


@pytest.mark.usefixtures("small_limits")
def test_a_large_text_is_divided_at_blank_lines(tmp_path: Path) -> None:
    paragraphs = [f"Paragraph {n} of twenty words.\nIts second line.\n\n" for n in range(12)]
    path = write(tmp_path, "book.txt", "".join(paragraphs).encode())
    found = texts(path)
    assert [line for line, _ in found] == [1 + 3 * n for n in range(12)]
    assert [text for _, text in found] == paragraphs
    assert [item.title for item in read(path) if isinstance(item, Found)][2] == "book, part 3"


@pytest.mark.usefixtures("small_limits")
@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab é\n"), max_size=60), min_size=10, max_size=20))
def test_dividing_loses_nothing(pieces: list[str]) -> None:
    text = "\n".join(piece[:60] for piece in pieces) + "\n" + "end of the text\n" * 14
    with tempfile.TemporaryDirectory() as folder:
        found = texts(write(Path(folder), "x.txt", text.encode()))
    assert "".join(part for _, part in found) == text


@pytest.mark.usefixtures("small_limits")
def test_a_bad_part_costs_only_itself(tmp_path: Path) -> None:
    good = b"A paragraph that is long enough to be a part.\n\n"
    path = write(tmp_path, "x.txt", good * 2 + b"caf\xe9 " + good + b"y" * 300 + b"\n" + good * 2)
    assert skips(path) == [(5, SkipReason.NOT_TEXT), (7, SkipReason.TOO_LONG)]
    assert [line for line, _ in texts(path)] == [1, 3, 8, 10]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_rows(tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array([f"text {n % 90}" for n in range(150)] + [None]).cast(kind)
    table = pa.table({"text": column, "title": [f"T{n}" if n % 2 else "" for n in range(151)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=40)
    items = list(read(tmp_path / "x.parquet"))
    assert [item.line for item in items] == list(range(1, 152))
    assert items[99] == Found(100, items[99].end, "T99", "text 9")
    assert items[2].title == "x, row 3" if isinstance(items[2], Found) else False
    assert isinstance(items[150], Skip) and items[150].reason is SkipReason.EMPTY
    assert items[150].end == (tmp_path / "x.parquet").stat().st_size


def test_one_bad_parquet_value_costs_only_itself(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"caf\xe9", b"also good"], pa.binary())
    pq.write_table(pa.table({"orig_doc": raw.view(pa.string())}), tmp_path / "x.parquet")
    assert texts(tmp_path / "x.parquet") == [(1, "good"), (3, "also good")]
    assert skips(tmp_path / "x.parquet") == [(2, SkipReason.NOT_TEXT)]


def unusable(path: Path) -> SkipReason:
    with pytest.raises(UnusableFileError) as caught:
        list(read(path))
    return caught.value.reason


def test_files_that_are_no_use(tmp_path: Path) -> None:
    assert unusable(tmp_path / "none.txt") is SkipReason.UNREADABLE
    assert unusable(write(tmp_path, "x.pdf", b"text")) is SkipReason.UNKNOWN_SUFFIX
    assert unusable(write(tmp_path, "plain", b"text")) is SkipReason.UNKNOWN_SUFFIX
    assert unusable(write(tmp_path, "utf16.txt", "text".encode("utf-16"))) is SkipReason.NOT_TEXT
    assert unusable(write(tmp_path, "binary.jsonl", b"\x7fELF\0\0")) is SkipReason.NOT_TEXT
    assert unusable(write(tmp_path, "empty.parquet", b"")) is SkipReason.DAMAGED
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "key.parquet")
    assert unusable(tmp_path / "key.parquet") is SkipReason.MISSING_KEY
    pq.write_table(pa.table({"text": [1]}), tmp_path / "type.parquet")
    assert unusable(tmp_path / "type.parquet") is SkipReason.WRONG_TYPE


def test_the_line_that_is_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableFileError, match="not UTF-8 text: line 3"):
        list(read(write(tmp_path, "x.txt", b"one\ntwo\ncaf\xe9\n")))


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.txt")
    assert unusable(tmp_path / "x.txt") is SkipReason.UNREADABLE


@pytest.fixture
def without_rights() -> Iterator[Path]:
    """A folder with a file that this process may not read, even when it runs as root."""
    with tempfile.TemporaryDirectory() as name:
        path = write(Path(name), "secret.txt", b"text")
        Path(name).chmod(0o755)
        path.chmod(0)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            yield path
        finally:
            if root:
                os.seteuid(0)


def test_a_file_without_rights_says_so(without_rights: Path) -> None:
    with pytest.raises(UnusableFileError, match="Permission denied"):
        list(read(without_rights))
