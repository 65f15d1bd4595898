"""``launcher data``: text in, shards out, and a look inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

np = pytest.importorskip("numpy", reason="the extra 'local' is not installed")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Two documents as JSON lines."""
    path = tmp_path / "two.jsonl"
    path.write_text('{"body": "first"}\n{"body": "second one"}\n')
    return path


def test_text_becomes_shards_that_can_be_shown(cli: Cli, lines: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "corpus"

    prepared = cli("data", "prepare", lines, "--output", prefix, "--text-key", "body", "--json")
    shown = cli("data", "show", prefix, "--document", "1", "--json")

    assert prepared.code == shown.code == 0
    # bytes of both texts and an end-of-document token each
    assert prepared.document["tokens"] == len("first") + 1 + len("second one") + 1
    assert prepared.document["documents"] == 2
    assert (tmp_path / "corpus.bin").is_file()
    assert (tmp_path / "corpus.idx").is_file()
    assert shown.document["document"]["text"] == "second one"
    assert shown.document["document"]["first_tokens"][:3] == [ord("s"), ord("e"), ord("c")]


def test_show_reads_like_a_card(cli: Cli, lines: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "corpus"
    cli("data", "prepare", lines, "--output", prefix, "--text-key", "body")

    text = cli("data", "show", prefix).out

    assert "holds      2 documents, 17 tokens\n" in text
    assert "tokenizer  bytes, 257 tokens\n" in text
    assert "made from  two.jsonl" in text
    assert "document 0: 6 tokens\n  first" in text


def test_a_bpe_is_trained_to_the_size_asked_for(cli: Cli, tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    text.write_text("the cat sat on the mat and the rat sat on the cat\n" * 50)

    outcome = cli(
        "data", "prepare", text, "--output", tmp_path / "c", "--tokenizer", "bpe", "--vocab-size", "270", "--json"
    )

    assert outcome.document["tokenizer"] == "bpe"
    assert outcome.document["vocab_size"] == 270


def test_what_to_do_next_is_said(cli: Cli, lines: Path, tmp_path: Path) -> None:
    outcome = cli("data", "prepare", lines, "--output", tmp_path / "c", "--text-key", "body")

    assert f"'data.train=[{tmp_path / 'c'}]' model.vocab_size=257" in outcome.out


def test_a_missing_field_is_told_with_its_line(cli: Cli, lines: Path, tmp_path: Path) -> None:
    outcome = cli("data", "prepare", lines, "--output", tmp_path / "c")

    assert outcome.code == 3
    assert "two.jsonl:1" in outcome.err
    assert not outcome.err.endswith("Nothing was submitted.\n")


def test_a_document_that_is_not_there_is_refused(cli: Cli, lines: Path, tmp_path: Path) -> None:
    cli("data", "prepare", lines, "--output", tmp_path / "c", "--text-key", "body")

    outcome = cli("data", "show", tmp_path / "c", "--document", "2")

    assert outcome.code == 2
    assert "allowed  0 to 1" in outcome.err


def test_a_corpus_that_is_not_there_is_refused(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("data", "show", tmp_path / "nothing")

    assert outcome.code == 3
    assert "nothing.idx" in outcome.err


def test_an_input_that_is_not_there_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    assert cli("data", "prepare", tmp_path / "nothing.txt", "--output", tmp_path / "c").code == 2


def test_instructions_are_prepared_with_the_prompts_masked(cli: Cli, tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"prompt": "2+2=", "completion": "4"}\n')

    outcome = cli("data", "prepare", chats, "--output", tmp_path / "c", "--format", "instruction", "--json")

    assert outcome.code == 0, outcome.err
    assert outcome.document["tokens"] == len("2+2=") + len("4") + 1
    # a mark of 16 bits a token: learnt are the completion and the end
    assert np.fromfile(tmp_path / "c.targets.bin", "<u2").tolist() == [0, 0, 0, 0, 1, 1]
