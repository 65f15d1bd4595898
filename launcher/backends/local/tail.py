"""Lines of a file that is still being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_BYTES = 1 << 20
"""Read at once; a longer backlog comes with the next call."""


class Tail:
    """Whole lines, each once; a file that is not there yet has none."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._rest = b""

    def lines(self) -> list[str]:
        """Lines finished since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                read = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(read)
        *whole, self._rest = (self._rest + read).split(b"\n")
        return [_text(line) for line in whole]

    def last(self) -> Iterator[str]:
        """Everything that is left, with the line nobody will finish."""
        while new := self.lines():
            yield from new
        rest, self._rest = self._rest, b""
        if rest:
            yield _text(rest)


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", errors="replace")
