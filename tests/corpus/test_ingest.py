"""Ingest: counted, repeatable, bounded in memory, safe to kill."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spade_daemon.corpus import ingest as ingest_module
from spade_daemon.corpus.ingest import Report, ingest
from spade_daemon.corpus.readers import SkipReason
from spade_daemon.corpus.store import Corpus, default_documents
from spade_daemon.errors import UserInputError

ROOT = Path(__file__).parents[2]


def prose(number: int, words: int = 30) -> str:
    return " ".join(f"word{number}x{place}" for place in range(words))


def write_jsonl(path: Path, numbers: range) -> Path:
    path.write_text("".join(json.dumps({"text": prose(n)}) + "\n" for n in numbers))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus.open(tmp_path / "home" / "corpus.sqlite")


def test_counts_add_up(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    lines = [json.dumps({"text": prose(n % 7)}) for n in range(10)] + ["{", '{"text": "short"}', '{"text": " "}']
    path.write_text("\n".join(lines))
    report = ingest(corpus, [path])
    assert (report.added, report.duplicates, report.files) == (7, 3, 1)
    assert report.skipped == {SkipReason.BAD_JSON: 1, SkipReason.TOO_SHORT: 1, SkipReason.EMPTY: 1}
    assert [example.where for example in report.examples] == [f"{path}:{line}" for line in (11, 12, 13)]
    assert report.bytes == path.stat().st_size
    assert corpus.get(next(corpus.digests())).source == f"{path}:1"


def test_again_is_harmless(corpus: Corpus, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", range(600))
    ingest(corpus, [path])
    before = list(corpus.digests())
    again = ingest(corpus, [path, path])
    assert (again.added, again.duplicates) == (0, 1200)
    assert list(corpus.digests()) == before


def test_the_same_text_from_another_kind_of_file_is_a_duplicate(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(prose(1) + "\n\n\n")
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbf" + prose(1).encode() + b"\r\n")
    write_jsonl(tmp_path / "c.jsonl", range(1, 2))
    report = ingest(corpus, [tmp_path / "a.md", tmp_path / "b.txt", tmp_path / "c.jsonl"])
    assert (report.added, report.duplicates) == (1, 2)


def test_examples_are_limited_counts_are_not(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{\n" * 1000)
    report = ingest(corpus, [path])
    assert report.skipped == {SkipReason.BAD_JSON: 1000}
    assert len(report.examples) == 20


def make_folder(folder: Path) -> None:
    outside = folder.parent / "outside.txt"
    outside.write_text(prose(99))
    deep = folder / "b" / "deep"
    deep.mkdir(parents=True)
    (folder / "a.txt").write_text(prose(1))
    (deep / "c.md").write_text(prose(2))
    (deep / "loop").symlink_to(folder)
    (folder / "self").symlink_to("self")
    (folder / "link.txt").symlink_to(outside)
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / ".git").mkdir()
    (folder / ".git" / "note.txt").write_text(prose(3))
    os.mkfifo(folder / "pipe.txt")


def test_a_folder_is_walked_within_its_bounds(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    make_folder(folder)
    report = ingest(corpus, [folder])
    assert report.added == 2
    assert report.skipped == {
        SkipReason.LINK: 3,
        SkipReason.UNKNOWN_SUFFIX: 1,
        SkipReason.NOT_TEXT: 1,
        SkipReason.HIDDEN: 1,
        SkipReason.UNREADABLE: 1,
    }
    sources = [corpus.get(digest).source for digest in corpus.digests()]
    assert sources == [f"{folder}/a.txt:1", f"{folder}/b/deep/c.md:1"]


def test_a_link_that_is_named_is_followed(corpus: Corpus, tmp_path: Path) -> None:
    make_folder(tmp_path / "folder")
    assert ingest(corpus, [tmp_path / "folder" / "link.txt"]).added == 1


def test_a_name_of_odd_bytes_is_no_obstacle(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9\n\x1b[31m.txt")).write_text(prose(1))
    report = ingest(corpus, [folder])
    assert report.added == 1
    assert corpus.get(next(corpus.digests())).source == f"{folder}/caf���[31m.txt:1"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "No such file"),
        ("x.docx", b"PK", "unknown suffix: .docx: convert it"),
        ("x.txt", b"caf\xe9", "not UTF-8 text: line 1: convert it"),
        ("x.parquet", b"PAR1", "damaged file"),
    ],
)
def test_a_named_file_that_is_no_use_is_an_error(
    corpus: Corpus, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    good = write_jsonl(tmp_path / "good.jsonl", range(3))
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserInputError, match=message) as caught:
        ingest(corpus, [good, tmp_path / name])
    assert "\n" not in str(caught.value)
    assert len(corpus) == (0 if content is None else 3), "a missing file is noticed before anything is read"


def test_a_person_can_watch(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_module, "BATCH_DOCUMENTS", 10)
    path = write_jsonl(tmp_path / "x.jsonl", range(35))
    seen: list[tuple[Path, Report]] = []
    final = ingest(corpus, [path], lambda file, report: seen.append((file, report)))
    assert [report.added for _, report in seen] == [10, 20, 30, 35]
    assert {file for file, _ in seen} == {path}
    read = [report.bytes for _, report in seen]
    assert read == sorted(read) and read[-1] == final.bytes == path.stat().st_size


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


KILLED = """
    import sys
    from pathlib import Path
    from spade_daemon.corpus import ingest as module
    from spade_daemon.corpus.store import Corpus

    def wait(path, report):
        if report.added >= 200:
            print(report.added, flush=True)
            sys.stdin.read()

    module.BATCH_DOCUMENTS = 50
    module.ingest(Corpus.open(Path(sys.argv[1])), [Path(sys.argv[2])], wait)
"""


def test_killed_in_the_middle_and_run_again_gives_the_same(corpus: Corpus, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", range(500))
    process = start(KILLED, str(tmp_path / "killed.sqlite"), str(path))
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "200"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with Corpus.open(tmp_path / "killed.sqlite") as killed:
        assert len(killed) == 200
        ingest(killed, [path])
        ingest(corpus, [path])
        assert list(killed.digests()) == list(corpus.digests())
        assert killed.stats().words == corpus.stats().words == 500 * 30


TOGETHER = """
    import sys
    from pathlib import Path
    from spade_daemon.corpus.store import Corpus

    print("ready", flush=True)
    sys.stdin.readline()
    corpus = Corpus.open(Path(sys.argv[1]))
    print(corpus.ensure_default(), len(corpus), corpus.sample(5, 3).digest, flush=True)
"""


def test_daemons_that_start_together_make_one_corpus(tmp_path: Path) -> None:
    processes = [start(TOGETHER, str(tmp_path / "corpus.sqlite")) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0].split() for process in processes]
    added = [int(count) for count, _, _ in answers]
    assert sorted(added) == [0, 0, 0, len(default_documents())]
    assert len({(size, drawn) for _, size, drawn in answers}) == 1


MEMORY = """
    import resource, sys
    from pathlib import Path
    from spade_daemon.corpus.ingest import ingest
    from spade_daemon.corpus.store import Corpus

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    corpus = Corpus.open(Path(sys.argv[1]))
    ingest(corpus, [Path(sys.argv[2])])
    before = peak()
    report = ingest(corpus, [Path(path) for path in sys.argv[3:]])
    print(report.bytes >> 20, report.added, peak() - before)
"""


def test_memory_stays_flat(tmp_path: Path) -> None:
    """120 MB of JSON lines, and a 30 MB text without a blank line, grow the process by a few batches only."""
    warm_up = write_jsonl(tmp_path / "warm.jsonl", range(300))
    block = "\n".join(json.dumps({"text": prose(n, 5) + " filler text of a line" * 4000}) for n in range(12)) + "\n"
    large = tmp_path / "large.jsonl"
    with large.open("w") as file:
        while file.tell() < 120 << 20:
            file.write(block)
    text = tmp_path / "large.txt"
    with text.open("w") as file:
        while file.tell() < 30 << 20:
            file.write("Eight words stand here again on each line.\n" * 10_000)
    process = start(MEMORY, str(tmp_path / "corpus.sqlite"), *map(str, (warm_up, large, text)))
    output, _ = process.communicate()
    megabytes, added, growth = map(int, output.splitlines()[-1].split())
    assert megabytes >= 150
    assert added >= 12
    assert growth < 100, f"{growth} MB more"
