from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from launcher.training.data import documents
from launcher.training.data.demo import DEMO_TEXT
from launcher.training.data.errors import DataError
from launcher.training.data.indexed import open_indexed
from launcher.training.data.prepare import Progress, prepare, record_file, tokenizer_folder
from launcher.training.data.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHAPTERS = ["First.\n\nA man.\r\n", "Second, with é and 漢字.", "Third\n"]


def as_text(folder: Path) -> list[Path]:
    for number, chapter in enumerate(CHAPTERS):
        (folder / f"{number}.txt").write_bytes(chapter.encode())
    return [folder / f"{number}.txt" for number in range(len(CHAPTERS))]


def as_lines(folder: Path) -> list[Path]:
    path = folder / "c.jsonl"
    path.write_text("\n".join(json.dumps({"id": 1, "body": chapter}) for chapter in CHAPTERS) + "\n\n")
    return [path]


def as_parquet(folder: Path) -> list[Path]:
    pyarrow.parquet.write_table(pyarrow.table({"body": CHAPTERS, "id": [1, 2, 3]}), folder / "c.parquet")
    return [folder / "c.parquet"]


@pytest.mark.parametrize("piece_characters", [1 << 20, 8, 1])
@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
def test_text_lines_and_parquet_give_the_same_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_characters: int, tokenizer: str
) -> None:
    monkeypatch.setattr(documents, "_PIECE_CHARACTERS", piece_characters)
    contents = set()
    for number, inputs in enumerate((as_text(tmp_path), as_lines(tmp_path), as_parquet(tmp_path))):
        prepared = prepare(inputs, tmp_path / f"out{number}", tokenizer, vocab_size=300, text_key="body")
        assert prepared.documents == 3
        contents.add((tmp_path / f"out{number}.bin").read_bytes() + (tmp_path / f"out{number}.idx").read_bytes())
    assert len(contents) == 1
    corpus, codec = open_indexed(tmp_path / "out0"), load_tokenizer(tokenizer_folder(tmp_path / "out0"))
    assert [codec.decode(corpus.document(d)) for d in range(3)] == CHAPTERS
    assert all(corpus.document(d)[-1] == codec.end_of_document for d in range(3))


def test_cutting_a_long_text_into_pieces_changes_no_byte_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_PIECE_CHARACTERS", 1000)
    prepare([DEMO_TEXT], tmp_path / "out")
    corpus = open_indexed(tmp_path / "out")
    assert corpus.tokens[:-1].astype(np.uint8).tobytes() == DEMO_TEXT.read_bytes()
    assert corpus.document_count == 1


def test_the_demo_text_is_all_of_persuasion() -> None:
    text = DEMO_TEXT.read_text(encoding="ascii")
    assert text.startswith("Persuasion\n\n\nby\n\nJane Austen\n")
    assert text.rstrip().endswith("Finis")
    assert [line for line in text.splitlines() if line.startswith("Chapter ")] == [f"Chapter {n}" for n in range(1, 25)]
    assert "gutenberg" not in text.lower()


def test_the_record_says_what_a_corpus_was_made_from(tmp_path: Path) -> None:
    prepared = prepare([DEMO_TEXT], tmp_path / "out")
    record = json.loads(record_file(prepared.prefix).read_text())
    assert record["sources"] == [
        {"name": "demo.txt", "bytes": 466_854, "sha256": hashlib.sha256(DEMO_TEXT.read_bytes()).hexdigest()}
    ]
    assert record["bin_sha256"] == hashlib.sha256((tmp_path / "out.bin").read_bytes()).hexdigest()
    assert record["idx_sha256"] == hashlib.sha256((tmp_path / "out.idx").read_bytes()).hexdigest()
    assert (record["documents"], record["tokens"]) == (prepared.documents, prepared.tokens) == (1, 466_855)
    assert record["tokenizer"]["vocab_size"] == 257


def test_progress_is_told_and_ends_with_everything(tmp_path: Path) -> None:
    told: list[Progress] = []
    prepare([DEMO_TEXT] * 3, tmp_path / "out", on_progress=told.append)
    assert told[-1] == Progress(documents=3, tokens=3 * 466_855, text_bytes=3 * 466_854, input_bytes=3 * 466_854)
    assert [p.documents for p in told] == sorted(p.documents for p in told)
    assert len(told) >= 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"txt": "y"}\n', r"a\.jsonl:2 has no text under 'text'"),
        ("a.jsonl", '{"text": 3}\n', r"a\.jsonl:1 has no text under 'text'"),
        ("a.jsonl", '{"text": "x"}\n\n{"text"\n', r"a\.jsonl:3 is not JSON"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1 is JSON but not an object"),
        ("a.jsonl", "[" * 100_000 + "\n", r"a\.jsonl:1 is not JSON"),
        ("a.txt", b"ok \xff", r"cannot read .*a\.txt: not UTF-8: byte 0xff"),
        ("a.parquet", b"PAR1 no", r"cannot read .*a\.parquet"),
        ("a.csv", "x", r"a\.csv is none of the formats read here"),
    ],
)
def test_bad_input_is_named_with_its_place_and_nothing_is_left(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        prepare([path], tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"c\.parquet has no text under 'text'") as caught:
        prepare(as_parquet(tmp_path), tmp_path / "out")
    assert caught.value.faults[0].allowed == "one of body, id, holding a string"


def test_a_null_in_parquet_is_named_by_its_row(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"] * 2000 + [None]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet row 2000 has no text"):
        prepare([tmp_path / "c.parquet"], tmp_path / "out")


def test_half_a_surrogate_pair_becomes_the_replacement_character(
    tmp_path: Path, write_lines: Callable[[Path, list[dict[str, Any]]], Path]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\ud83db"}\n')
    prepare([path], tmp_path / "out")
    assert open_indexed(tmp_path / "out").tokens.tolist() == [97, *"�".encode(), 98, 256]


def test_an_empty_document_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": "b"}\n')
    assert prepare([tmp_path / "a.jsonl"], tmp_path / "out").documents == 1


def test_preparing_again_replaces_a_corpus(tmp_path: Path) -> None:
    for text in ("old", "new"):
        (tmp_path / "a.txt").write_text(text)
        prepare([tmp_path / "a.txt"], tmp_path / "out")
    assert open_indexed(tmp_path / "out").tokens.tolist() == [*b"new", 256]


def test_many_lines_are_prepared_in_bounded_memory(tmp_path: Path) -> None:
    import subprocess
    import sys

    line = json.dumps({"text": "x" * 1000}) + "\n"
    (tmp_path / "a.jsonl").write_text(line * 60_000)  # 61 MB
    script = (
        "import sys, resource; from pathlib import Path; from launcher.training.data.prepare import prepare\n"
        "import launcher.training.data.tokenizer, numpy\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "prepare([Path(sys.argv[1])], Path(sys.argv[2]))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.jsonl"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    # Two batches of 8 Mi characters and their tokens are 32 MiB; the input is 58 MiB and its tokens 114 MiB.
    assert int(run.stdout) < 50
