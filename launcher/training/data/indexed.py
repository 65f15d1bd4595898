r"""Megatron's indexed format: ``PREFIX.bin`` holds tokens, ``PREFIX.idx`` says where each document begins.

The layout is that of Megatron-Core 0.16, ``megatron/core/datasets/indexed_dataset.py``, little-endian throughout::

    .idx   b"MMIDIDX\0\0"   version u64 = 1   dtype code u8   sequences u64   documents + 1 u64
           lengths   int32[sequences]       tokens of each sequence
           pointers  int64[sequences]       its first byte in .bin
           documents int64[documents + 1]   its first sequence; the last entry is the number of sequences
           modes     int8[sequences]        of multimodal corpora only; not read here
    .bin   the tokens of every sequence, one after the other

A *sequence* is Megatron's word for a piece of a document; text corpora have one a document.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from launcher.training.data.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import numpy.typing as npt

_HEADER = b"MMIDIDX\x00\x00"
_VERSION = 1
_PREAMBLE = struct.Struct("<9sQBQQ")
_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
# Megatron's DType codes; 6 and 7 are floating point, which no token is.
_SMALL_VOCABULARY = 65500
# Below it Megatron-LM's preprocess_data stores uint16, else int32 (DType.optimal_dtype).
_LONGEST_SEQUENCE = 2**31 - 1
# Lengths are int32; a longer document becomes several sequences.


def bin_file(prefix: Path) -> Path:
    """The tokens of the corpus ``prefix``."""
    return prefix.with_name(prefix.name + ".bin")


def idx_file(prefix: Path) -> Path:
    """The index of the corpus ``prefix``."""
    return prefix.with_name(prefix.name + ".idx")


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """How a token of a vocabulary of ``vocab_size`` is stored: uint16 below 65,500, else int32."""
    return np.dtype("<u2" if vocab_size < _SMALL_VOCABULARY else "<i4")


@dataclass(frozen=True, kw_only=True, eq=False)
class Indexed:
    """A corpus on disk, memory-mapped: nothing is read until it is looked at, nothing is copied."""

    prefix: Path
    tokens: npt.NDArray[Any]
    """All tokens in the order of the file, as stored (uint16 or int32)."""
    lengths: npt.NDArray[np.int32]
    """Tokens per sequence."""
    pointers: npt.NDArray[np.int64]
    """First byte of each sequence in ``.bin``."""
    documents: npt.NDArray[np.int64]
    """First sequence of each document, and the number of sequences at the end."""

    @property
    def document_count(self) -> int:
        """Documents in the corpus."""
        return len(self.documents) - 1

    def document_start(self, document: int) -> int:
        """The first token of ``document`` in ``tokens``; for one past the last document, the number of tokens."""
        sequence = int(self.documents[document])
        if sequence == len(self.lengths):
            return len(self.tokens)
        return int(self.pointers[sequence]) // self.tokens.itemsize

    def document_starts(self) -> npt.NDArray[np.int64]:
        """The first token of every document and the number of tokens: 8 bytes a document, in memory."""
        starts = np.append(self.pointers // self.tokens.itemsize, len(self.tokens))
        return starts[self.documents]

    def documents_between(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """The first tokens of the documents that begin after token ``begin`` and before token ``end``."""
        count = self.document_count
        first = bisect_right(range(count), begin, key=self.document_start)
        last = bisect_left(range(count), end, lo=first, key=self.document_start)
        return np.array([self.document_start(document) for document in range(first, last)], np.int64)

    def document(self, document: int) -> npt.NDArray[Any]:
        """The tokens of ``document``, a view."""
        return self.tokens[self.document_start(document) : self.document_start(document + 1)]


def open_indexed(prefix: Path) -> Indexed:
    """Map the corpus ``prefix``.

    The sizes of both files are checked against each other at the cost of a few reads, whatever the corpus's size.

    Raises:
        DataError: a file is missing, is not this format, or has another size than the index says.
    """
    index = _map(idx_file(prefix))
    dtype, sequences, documents = _read_preamble(idx_file(prefix), index)
    bodies = _PREAMBLE.size + 12 * sequences + 8 * documents
    if len(index) not in (bodies, bodies + sequences):
        raise _wrong_size(idx_file(prefix), expected=bodies, actual=len(index))
    at = _PREAMBLE.size
    corpus = Indexed(
        prefix=prefix,
        tokens=_map_tokens(bin_file(prefix), dtype),
        lengths=np.frombuffer(index, "<i4", sequences, at),
        pointers=np.frombuffer(index, "<i8", sequences, at + 4 * sequences),
        documents=np.frombuffer(index, "<i8", documents, at + 12 * sequences),
    )
    _check_bounds(corpus)
    return corpus


def _map(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", code="data.unreadable") from error


def _read_preamble(path: Path, index: mmap.mmap | bytes) -> tuple[np.dtype[Any], int, int]:
    if len(index) < _PREAMBLE.size:
        raise _wrong_size(path, expected=_PREAMBLE.size, actual=len(index))
    header, version, code, sequences, documents = _PREAMBLE.unpack(index[: _PREAMBLE.size])
    if header != _HEADER or version != _VERSION:
        what = f"{path} is not a Megatron index: it begins with {header!r}, version {version}"
        raise DataError(what, code="data.not_an_index", allowed=f"{_HEADER!r}, version {_VERSION}")
    if code not in _DTYPES:
        what = f"{path} stores tokens as dtype code {code}"
        raise DataError(what, code="data.dtype", allowed=", ".join(f"{c} ({np.dtype(d)})" for c, d in _DTYPES.items()))
    return np.dtype(_DTYPES[code]), sequences, documents


def _map_tokens(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    content = _map(path)
    if len(content) % dtype.itemsize:
        whole = len(content) - len(content) % dtype.itemsize
        raise _wrong_size(path, expected=whole, actual=len(content), why=f"whole {dtype} tokens")
    return np.frombuffer(content, dtype)


def _check_bounds(corpus: Indexed) -> None:
    """The index ends where the tokens end, and every document has its sequences."""
    if len(corpus.documents) == 0 or corpus.documents[0] != 0 or corpus.documents[-1] != len(corpus.lengths):
        what = f"{idx_file(corpus.prefix)} gives its documents other sequences than the {len(corpus.lengths)} it lists"
        raise DataError(what, code="data.index_damaged", suggestion="prepare the corpus again")
    expected = 0
    if len(corpus.lengths):
        expected = int(corpus.pointers[-1]) + int(corpus.lengths[-1]) * corpus.tokens.itemsize
    if expected != corpus.tokens.nbytes:
        raise _wrong_size(bin_file(corpus.prefix), expected=expected, actual=corpus.tokens.nbytes)


def _wrong_size(path: Path, *, expected: int, actual: int, why: str = "") -> DataError:
    reason = f" for {why}" if why else ""
    return DataError(
        f"{path} has {actual:,} bytes, expected {expected:,}{reason}",
        code="data.wrong_size",
        suggestion="copy or prepare it again; .bin and .idx of one corpus belong together",
    )


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a writer left on disk."""

    documents: int
    tokens: int
    bytes: int
    """Of both files together."""
    bin_sha256: str
    idx_sha256: str


class IndexedWriter:
    """Writes a corpus beside its place and puts it there when the ``with`` block ends without an exception.

    Memory: 12 bytes a document. ``written`` is set once the files stand under their names.
    """

    written: Written
    tokens: int = 0
    """Tokens of closed documents so far."""

    def __init__(self, prefix: Path, *, vocab_size: int) -> None:
        self._prefix = prefix
        self._vocab_size = vocab_size
        self._dtype = token_dtype(vocab_size)
        self._lengths = array("i")
        self._documents = array("q", [0])
        self._open_tokens = 0
        self._digest = hashlib.sha256()

    def add_tokens(self, tokens: npt.NDArray[Any]) -> None:
        """Append ``tokens`` to the open document.

        Raises:
            DataError: a token is outside the vocabulary.
        """
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < self._vocab_size:
            what = f"tokens {int(tokens.min())} to {int(tokens.max())} do not fit a vocabulary of {self._vocab_size}"
            raise DataError(what, code="data.token_range")
        stored = tokens.astype(self._dtype, copy=False).tobytes()
        self._file.write(stored)
        self._digest.update(stored)
        self._open_tokens += len(tokens)

    def end_document(self, last: npt.NDArray[Any]) -> None:
        """Append ``last`` and close the open document; one without tokens is left out, as Megatron does."""
        if not self._open_tokens:
            return
        self.add_tokens(last)
        self.tokens += self._open_tokens
        while self._open_tokens:
            length = min(self._open_tokens, _LONGEST_SEQUENCE)
            self._lengths.append(length)
            self._open_tokens -= length
        self._documents.append(len(self._lengths))

    @property
    def documents(self) -> int:
        """Closed documents so far."""
        return len(self._documents) - 1

    def __enter__(self) -> Self:
        self._prefix.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = _partial(bin_file(self._prefix)).open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self._commit()
        finally:
            self._file.close()
            for path in (bin_file(self._prefix), idx_file(self._prefix)):
                _partial(path).unlink(missing_ok=True)

    def _commit(self) -> None:
        _flush(self._file)
        index = self._index()
        with _partial(idx_file(self._prefix)).open("wb") as file:
            file.write(index)
            _flush(file)
        idx_file(self._prefix).unlink(missing_ok=True)  # so that an old index never meets new tokens
        for path in (bin_file(self._prefix), idx_file(self._prefix)):
            _partial(path).replace(path)
        self.written = Written(
            documents=self.documents,
            tokens=self.tokens,
            bytes=self.tokens * self._dtype.itemsize + len(index),
            bin_sha256=self._digest.hexdigest(),
            idx_sha256=hashlib.sha256(index).hexdigest(),
        )

    def _index(self) -> bytes:
        code = next(code for code, name in _DTYPES.items() if np.dtype(name) == self._dtype)
        lengths = np.frombuffer(self._lengths, "<i4") if self._lengths else np.zeros(0, "<i4")
        pointers = np.zeros(len(lengths), "<i8")
        np.cumsum(lengths[:-1], out=pointers[1:])
        pointers *= self._dtype.itemsize
        documents = np.frombuffer(self._documents, "<i8")
        preamble = _PREAMBLE.pack(_HEADER, _VERSION, code, len(lengths), len(documents))
        return b"".join((preamble, lengths.tobytes(), pointers.tobytes(), documents.tobytes()))


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
