"""The documents of a file, piece by piece: text, JSON lines or parquet, each in bounded memory.

* ``.txt``: the whole file is one document (a novel's paragraphs belong together);
* ``.jsonl``, ``.json``: each line is an object whose ``text_key`` holds a document;
* ``.parquet``: each row's column ``text_key`` holds a document.

The same document gives the same pieces whatever file it comes from. A document longer than a piece is cut after a line.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.training.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PIECE_CHARACTERS = 1 << 20
# Memory per piece, and the portion in which several cores tokenize one long text.
_PARQUET_ROWS = 1024

FORMATS = (".txt", ".jsonl", ".json", ".parquet")
"""Suffixes of files that hold text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some text of a document, and whether the document ends with it."""

    text: str
    ends_document: bool


def read_pieces(path: Path, *, text_key: str) -> Iterator[Piece]:
    """Every document of ``path``, in order, as pieces.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or a record lacks ``text_key``; with the line or row.
    """
    if path.suffix == ".txt":
        yield from _read_text(path)
        return
    for text in _read_parquet(path, text_key) if path.suffix == ".parquet" else _read_json_lines(path, text_key):
        yield from _cut(io.StringIO(text, newline="").read)


def check_format(path: Path, *, formats: tuple[str, ...] = FORMATS, keys: tuple[str, ...] = ()) -> None:
    """Refuse a file that is not there or not of ``formats``.

    Raises:
        DataError: naming the recipe's ``keys``.
    """
    if path.suffix not in formats:
        allowed = f"{', '.join(formats)}, or a .bin/.idx prefix"
        raise DataError(f"{path} is none of the formats read here", keys=keys, code="data.format", allowed=allowed)
    if not path.is_file():
        raise DataError(f"there is no file {path}", keys=keys, code="data.missing")


def _cut(read: Callable[[int], str]) -> Iterator[Piece]:
    """Cut what ``read`` yields after the last newline of each full piece; a line longer than a piece is cut inside."""
    waiting = read(_PIECE_CHARACTERS)
    while True:
        following = read(_PIECE_CHARACTERS - len(waiting) + 1)
        text = waiting + following
        if len(text) <= _PIECE_CHARACTERS:
            yield Piece(text=text, ends_document=True)
            return
        end = text.rfind("\n", 0, _PIECE_CHARACTERS) + 1 or _PIECE_CHARACTERS
        yield Piece(text=text[:end], ends_document=False)
        waiting = text[end:]


def _read_text(path: Path) -> Iterator[Piece]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _cut(file.read)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _read_json_lines(path: Path, text_key: str) -> Iterator[str]:
    for where, record in read_records(path):
        text = record.get(text_key)
        if not isinstance(text, str):
            raise _no_text(where, text_key, tuple(record))
        yield mend(text)


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each JSON line's object, with ``file:line``; empty lines are passed over.

    Raises:
        DataError: a line is not a JSON object.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.isspace():
                    yield f"{path}:{number}", _decode(line, where=f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _decode(line: str, *, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}", code="data.not_json") from error
    if not isinstance(record, dict):
        raise DataError(f"{where} is JSON but not an object", code="data.not_json", allowed='{"text": "..."}')
    return record


def mend(text: str) -> str:
    r"""``text``, with half surrogate pairs (JSON can spell them: ``"\ud83d"``) as the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _read_parquet(path: Path, text_key: str) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = tuple(file.schema_arrow.names)
            if text_key not in names:
                raise _no_text(str(path), text_key, names)
            batches = file.iter_batches(batch_size=_PARQUET_ROWS, columns=[text_key])
            rows = (text for batch in batches for text in batch.column(0).to_pylist())
            for row, text in enumerate(rows):
                if not isinstance(text, str):
                    raise _no_text(f"{path} row {row}", text_key, names)
                yield text
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error


def _no_text(where: str, text_key: str, names: tuple[str, ...]) -> DataError:
    return DataError(
        f"{where} has no text under {text_key!r}",
        keys=("data.text_key",),
        code="data.no_text",
        allowed=f"one of {', '.join(names)}, holding a string" if names else None,
    )


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).partition("\n")[0]
    if isinstance(error, UnicodeDecodeError):
        reason = f"not UTF-8: byte {error.object[error.start]:#04x}, {error.reason}"
    return DataError(f"cannot read {path}: {reason}", code="data.unreadable")
