from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.training.data.errors import DataError
from launcher.training.data.indexed import IndexedWriter, open_indexed, token_dtype

if TYPE_CHECKING:
    from pathlib import Path

END = np.array([0])


def write(prefix: Path, documents: list[list[int]], *, vocab_size: int = 100) -> Path:
    with IndexedWriter(prefix, vocab_size=vocab_size) as writer:
        for document in documents:
            writer.add_tokens(np.array(document, np.int64))
            writer.end_document(END)
    return prefix


@given(documents=st.lists(st.lists(st.integers(0, 99_999), min_size=1, max_size=20), max_size=20), wide=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read_back(tmp_path: Path, documents: list[list[int]], wide: bool) -> None:
    vocab_size = 100_000 if wide else 60_000
    documents = [[token % vocab_size for token in document] for document in documents]
    corpus = open_indexed(write(tmp_path / "c", documents, vocab_size=vocab_size))
    assert [corpus.document(d).tolist() for d in range(corpus.document_count)] == [[*d, 0] for d in documents]


def test_the_bytes_are_those_of_megatrons_layout(tmp_path: Path) -> None:
    prefix = write(tmp_path / "c", [[1, 2], [3]])
    # Two documents of 3 and 2 tokens with their ends; uint16 is Megatron's dtype code 8.
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 2, 3) + struct.pack("<2i2q3q", 3, 2, 0, 6, 0, 1, 2)
    assert (tmp_path / "c.idx").read_bytes() == index
    assert (tmp_path / "c.bin").read_bytes() == struct.pack("<5H", 1, 2, 0, 3, 0)
    assert open_indexed(prefix).tokens.tolist() == [1, 2, 0, 3, 0]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_499, np.uint16), (65_500, np.int32), (128_256, np.int32)])
def test_small_vocabularies_take_two_bytes_a_token(vocab_size: int, dtype: type) -> None:
    assert token_dtype(vocab_size) == dtype


def test_a_document_without_tokens_is_left_out(tmp_path: Path) -> None:
    corpus = open_indexed(write(tmp_path / "c", [[1], [], [2]]))
    assert [corpus.document(d).tolist() for d in range(corpus.document_count)] == [[1, 0], [2, 0]]


def test_reading_copies_nothing(tmp_path: Path) -> None:
    corpus = open_indexed(write(tmp_path / "c", [[1, 2, 3]]))
    assert not corpus.tokens.flags.owndata
    assert np.shares_memory(corpus.document(0), corpus.tokens)


def test_a_token_outside_the_vocabulary_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="tokens 7 to 100 do not fit a vocabulary of 100"):
        write(tmp_path / "c", [[7, 100]])
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_rewrite_leaves_the_old_corpus(tmp_path: Path) -> None:
    prefix = write(tmp_path / "c", [[1]])
    with pytest.raises(KeyboardInterrupt), IndexedWriter(prefix, vocab_size=100) as writer:
        writer.add_tokens(np.array([2]))
        raise KeyboardInterrupt
    assert open_indexed(prefix).tokens.tolist() == [1, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.bin", "c.idx"]


def damage(path: Path, content: Any) -> None:
    path.write_bytes(content(path.read_bytes()))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        # .bin: 5 tokens of 2 bytes. .idx: 34 + 12 x 2 sequences + 8 x 3 document entries = 82 bytes.
        (".bin", lambda b: b[:-4], r"c\.bin has 6 bytes, expected 10"),
        (".bin", lambda b: b + b"\0\0", r"c\.bin has 12 bytes, expected 10"),
        (".bin", lambda b: b[:-1], r"c\.bin has 9 bytes, expected 8 for whole uint16 tokens"),
        (".bin", lambda b: b"", r"c\.bin has 0 bytes, expected 10"),
        (".idx", lambda b: b[:-1], r"c\.idx has 81 bytes, expected 82"),
        (".idx", lambda b: b[:20], r"c\.idx has 20 bytes, expected 34"),
        (".idx", lambda b: b"", r"c\.idx has 0 bytes, expected 34"),
        (".idx", lambda b: b"X" + b[1:], r"c\.idx is not a Megatron index: it begins with b'XMIDIDX"),
        (".idx", lambda b: b[:9] + b"\2" + b[10:], r"c\.idx is not a Megatron index: .* version 2"),
        (".idx", lambda b: b[:17] + b"\7" + b[18:], r"c\.idx stores tokens as dtype code 7"),
        (".idx", lambda b: b[:-8] + struct.pack("<q", 1), r"c\.idx gives its documents other sequences than the 2"),
    ],
)
def test_a_damaged_file_is_named_with_what_it_has_and_should_have(
    tmp_path: Path, file: str, content: Any, message: str
) -> None:
    prefix = write(tmp_path / "c", [[1, 2], [3]])
    damage(tmp_path / f"c{file}", content)
    with pytest.raises(DataError, match=message):
        open_indexed(prefix)


@given(position=st.integers(0, 81), bit=st.integers(0, 7))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_in_an_index_is_an_error_of_ours_or_harmless(tmp_path: Path, position: int, bit: int) -> None:
    prefix = write(tmp_path / "c", [[1, 2], [3]])
    content = bytearray((tmp_path / "c.idx").read_bytes())
    content[position] ^= 1 << bit
    (tmp_path / "c.idx").write_bytes(content)
    try:
        assert open_indexed(prefix).tokens.nbytes == 10
    except DataError as error:
        assert "c." in str(error)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*nothing\.idx: No such file"):
        open_indexed(tmp_path / "nothing")


def test_the_documents_inside_a_stretch_are_found(tmp_path: Path) -> None:
    corpus = open_indexed(write(tmp_path / "c", [[1, 1], [2], [3, 3, 3]]))  # they begin at 0, 3 and 5, of 9 tokens
    assert corpus.document_starts().tolist() == [0, 3, 5, 9]
    assert corpus.documents_between(0, 9).tolist() == [3, 5]
    assert corpus.documents_between(3, 5).tolist() == []
    assert corpus.documents_between(2, 6).tolist() == [3, 5]
