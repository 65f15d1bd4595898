"""The tokens of text files, stretch by stretch, in the order of the files and in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.training.data.documents import Piece, read_pieces
from launcher.training.data.instruction import encode_example, read_examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from launcher.training.data.tokenizer import Tokenizer

_BATCH_CHARACTERS = 1 << 23
_BATCH_PIECES = 4096
# What is tokenized at once, on all cores; also what is held in memory.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some tokens of a document."""

    tokens: npt.NDArray[Any]
    is_target: npt.NDArray[np.bool_] | None
    """Which of them are learnt; None means all."""
    ends_document: bool
    text_bytes: int
    """The text they were made of, in UTF-8."""


def text_stretches(paths: Sequence[Path], tokenizer: Tokenizer, *, text_key: str) -> Iterator[Stretch]:
    """The documents of text files; raises what ``read_pieces`` does."""
    for batch in _batches(piece for path in paths for piece in read_pieces(path, text_key=text_key)):
        for piece, tokens in zip(batch, tokenizer.encode([piece.text for piece in batch]), strict=True):
            yield Stretch(
                tokens=tokens,
                is_target=None,
                ends_document=piece.ends_document,
                text_bytes=_utf8_bytes(piece.text),
            )


def instruction_stretches(paths: Sequence[Path], tokenizer: Tokenizer) -> Iterator[Stretch]:
    """The conversations of JSON lines, a stretch each; raises what ``read_examples`` does."""
    for path in paths:
        for example in read_examples(path, tokenizer):
            tokens, is_target = encode_example(example, tokenizer)
            yield Stretch(tokens=tokens, is_target=is_target, ends_document=True, text_bytes=_utf8_bytes(example.text))


def _batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    characters = 0
    for piece in pieces:
        batch.append(piece)
        characters += len(piece.text)
        if characters >= _BATCH_CHARACTERS or len(batch) == _BATCH_PIECES:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
