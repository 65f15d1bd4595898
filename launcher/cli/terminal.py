"""Text for a terminal: tables, columns and wrapped lines, measured without their colours."""

from __future__ import annotations

import shutil
import sys
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

DEFAULT_WIDTH = 100
"""Columns when stdout is not a terminal."""


def width() -> int:
    """Columns of the terminal, or 100 where there is none."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if sys.stdout.isatty() else DEFAULT_WIDTH


def bold(text: str) -> str:
    """A heading."""
    return click.style(text, bold=True)


def dim(text: str) -> str:
    """What may be skipped."""
    return click.style(text, dim=True)


def red(text: str) -> str:
    """An error."""
    return click.style(text, fg="red", bold=True)


def yellow(text: str) -> str:
    """A warning."""
    return click.style(text, fg="yellow")


def green(text: str) -> str:
    """Good news."""
    return click.style(text, fg="green")


def columns(text: str) -> int:
    """Columns that ``text`` takes on the screen."""
    return len(click.unstyle(text))


def pad(text: str, size: int, *, right: bool = False) -> str:
    """``text`` filled with spaces to ``size`` columns, on its right (or its left, to flush it ``right``)."""
    space = " " * (size - columns(text))
    return space + text if right else text + space


def table(rows: Iterable[Sequence[str]], *, right: Container[int] = (), gap: int = 2) -> list[str]:
    """Rows as aligned lines; columns in ``right`` are flushed right."""
    rows = [tuple(row) for row in rows]
    sizes = [max(map(columns, column)) for column in zip_longest(*rows, fillvalue="")]
    return [
        (" " * gap).join(pad(cell, sizes[i], right=i in right) for i, cell in enumerate(row)).rstrip() for row in rows
    ]


def titled_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
    """A table with a dim heading, cut to the width of the terminal."""
    return [cut(line, width()) for line in table([[dim(title) for title in header], *rows], right=right)]


def side_by_side(left: Sequence[str], right: Sequence[str], *, gap: int = 4) -> list[str]:
    """Two blocks of lines beside each other."""
    size = max(map(columns, left), default=0) + gap
    return [(pad(a, size) + b).rstrip() for a, b in zip_longest(left, right, fillvalue="")]


def ends(left: str, right: str, size: int) -> str:
    """``left`` and ``right`` at the two ends of a line, two spaces apart when it is too short for both."""
    return left + " " * max(2, size - columns(left) - columns(right)) + right


def labelled(label: str, lines: Iterable[str], *, size: int = 9) -> list[str]:
    """Lines after a label; the second and later ones stand under the first."""
    return [f"{label if i == 0 else '':<{size}}{line}".rstrip() for i, line in enumerate(lines)]


def wrapped(text: str, size: int, *, indent: str = "") -> list[str]:
    """``text`` in lines of at most ``size`` columns; later lines begin with ``indent``. Long words stay whole."""
    return textwrap.wrap(text, size, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]


def cut(line: str, size: int) -> str:
    """``line`` in at most ``size`` columns, with dots (and without its colours) when something is left out."""
    return line if columns(line) <= size else click.unstyle(line)[: max(0, size - 3)].rstrip() + "..."
