"""Text files to one corpus of tokenized shards, in bounded memory, the same bytes for the same input."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from launcher.training.data import documents, instruction
from launcher.training.data.documents import check_format, read_pieces
from launcher.training.data.encoding import Stretch, instruction_stretches, text_stretches
from launcher.training.data.indexed import IndexedWriter, Written
from launcher.training.data.tokenizer import ByteTokenizer, Tokenizer, check_vocabulary, load_tokenizer, train_bpe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Format = Literal["text", "instruction"]

_BPE_CHARACTERS = 1 << 28
# A vocabulary is learnt from the first 256 Mi characters: merges hardly change beyond, memory and time do.
_PROGRESS_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a preparation has come."""

    documents: int
    tokens: int
    text_bytes: int
    """Text read so far, in UTF-8."""
    input_bytes: int
    """Size of all input files: more than the text in JSON lines, less in compressed parquet."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A corpus on disk."""

    prefix: Path
    """The files are ``PREFIX.bin``, ``PREFIX.idx``, ``PREFIX.corpus.json`` and the folder ``PREFIX.tokenizer``;
    for instructions also ``PREFIX.targets.bin`` and ``.idx``, a 1 for each token that is learnt."""
    documents: int
    tokens: int
    """With one end-of-document token a document."""
    bytes: int
    """Of ``.bin`` and ``.idx``."""
    tokenizer: str
    """``bytes``, ``bpe`` or the folder."""
    vocab_size: int
    """Tokens the tokenizer knows; the model needs as many embedding rows."""


def prepare(
    inputs: Sequence[Path],
    output_prefix: Path,
    tokenizer: str | Tokenizer = "bytes",
    *,
    vocab_size: int | None = None,
    format: Format = "text",
    text_key: str = "text",
    on_progress: Callable[[Progress], None] | None = None,
) -> Prepared:
    """Tokenize ``inputs`` (.txt, .jsonl, .parquet), in the order given, into the corpus ``output_prefix``.

    ``vocab_size`` is the model's: the size of a ``bpe`` trained here, and the limit of any other tokenizer.
    Files appear under their names only when whole; the record of what they were made from comes last.

    Raises:
        DataError: an input or the tokenizer cannot be read, or the vocabulary does not fit.
    """
    for path in inputs:
        check_format(path, formats=readable_formats(format))
    if isinstance(tokenizer, str):
        tokenizer = make_tokenizer(tokenizer, inputs, vocab_size=vocab_size, text_key=text_key)
    if vocab_size is not None:
        check_vocabulary(tokenizer, vocab_size)
    if format == "text":
        stretches = text_stretches(inputs, tokenizer, text_key=text_key)
    else:
        stretches = instruction_stretches(inputs, tokenizer)
    reports = _Reports(on_progress, input_bytes=sum(path.stat().st_size for path in inputs))
    written = _write(stretches, output_prefix, tokenizer, reports, has_targets=format == "instruction")
    tokenizer.save(tokenizer_folder(output_prefix))
    _write_whole(record_file(output_prefix), _record(inputs, tokenizer, written, format=format, text_key=text_key))
    return Prepared(
        prefix=output_prefix,
        documents=written.documents,
        tokens=written.tokens,
        bytes=written.bytes,
        tokenizer=tokenizer.name,
        vocab_size=tokenizer.vocab_size,
    )


def readable_formats(format: Format) -> tuple[str, ...]:
    """Suffixes of files that can hold ``format``."""
    return documents.FORMATS if format == "text" else instruction.FORMATS


def make_tokenizer(name: str, inputs: Iterable[Path], *, vocab_size: int | None, text_key: str) -> Tokenizer:
    """The tokenizer ``name``; ``bpe`` is trained on ``inputs``, with 32,768 tokens where ``vocab_size`` is not given.

    Raises:
        DataError: as ``load_tokenizer`` and ``train_bpe`` do.
    """
    if name == "bytes":
        return ByteTokenizer()
    if name == "bpe":
        texts = (piece.text for path in inputs for piece in read_pieces(path, text_key=text_key))
        return train_bpe(_head(texts), vocab_size=vocab_size or 32_768)
    return load_tokenizer(Path(name))


def record_file(prefix: Path) -> Path:
    """The JSON beside a corpus that says what it was made from."""
    return prefix.with_name(prefix.name + ".corpus.json")


def tokenizer_folder(prefix: Path) -> Path:
    """The Hugging Face tokenizer folder beside a corpus."""
    return prefix.with_name(prefix.name + ".tokenizer")


def targets_prefix(prefix: Path) -> Path:
    """The corpus beside an instruction corpus that marks what is learnt: 1 or 0 for each of its tokens."""
    return prefix.with_name(prefix.name + ".targets")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _head(texts: Iterator[str]) -> Iterator[str]:
    characters = 0
    for text in texts:
        yield text
        characters += len(text)
        if characters >= _BPE_CHARACTERS:
            return


class _Reports:
    """Calls ``on_progress`` after each MiB of text, and at the end."""

    def __init__(self, on_progress: Callable[[Progress], None] | None, *, input_bytes: int) -> None:
        self._on_progress = on_progress
        self._input_bytes = input_bytes
        self._text_bytes = 0
        self._unreported = 0

    def add(self, stretch: Stretch, writer: IndexedWriter) -> None:
        self._text_bytes += stretch.text_bytes
        self._unreported += stretch.text_bytes
        if self._unreported >= _PROGRESS_BYTES:
            self.report(writer)

    def report(self, writer: IndexedWriter) -> None:
        self._unreported = 0
        if self._on_progress is not None:
            self._on_progress(
                Progress(
                    documents=writer.documents,
                    tokens=writer.tokens,
                    text_bytes=self._text_bytes,
                    input_bytes=self._input_bytes,
                )
            )


def _write(
    stretches: Iterator[Stretch], prefix: Path, tokenizer: Tokenizer, reports: _Reports, *, has_targets: bool
) -> Written:
    end, end_is_target = np.array([tokenizer.end_of_document]), np.array([1])
    with ExitStack() as stack:
        writer = stack.enter_context(IndexedWriter(prefix, vocab_size=tokenizer.vocab_size))
        if has_targets:
            targets = stack.enter_context(IndexedWriter(targets_prefix(prefix), vocab_size=2))
        for stretch in stretches:
            writer.add_tokens(stretch.tokens)
            if stretch.ends_document:
                writer.end_document(end)
            if stretch.is_target is not None:
                targets.add_tokens(stretch.is_target)
                targets.end_document(end_is_target)
            reports.add(stretch, writer)
        reports.report(writer)
        record_file(prefix).unlink(missing_ok=True)  # an old record must not vouch for new tokens
    return writer.written


def _record(
    inputs: Sequence[Path], tokenizer: Tokenizer, written: Written, *, format: Format, text_key: str
) -> dict[str, Any]:
    return {
        "version": 1,
        "documents": written.documents,
        "tokens": written.tokens,
        "bin_sha256": written.bin_sha256,
        "idx_sha256": written.idx_sha256,
        "tokenizer": {
            "name": tokenizer.name,
            "digest": tokenizer.digest,
            "vocab_size": tokenizer.vocab_size,
            "end_of_document": tokenizer.end_of_document,
        },
        "format": format,
        "text_key": text_key,
        "sources": [{"name": path.name, "bytes": path.stat().st_size, "sha256": file_digest(path)} for path in inputs],
    }


def _write_whole(path: Path, record: dict[str, Any]) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
