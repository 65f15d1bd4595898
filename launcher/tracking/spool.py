"""The spool: one JSON line per logged step in ``metrics.jsonl``, written by rank 0 whatever else is down.

The file is the truth and the queue: MLflow and ``launcher report`` read it, neither is waited for. A line is
``{"step": int, "time": unix seconds, "attempt": int, "metrics": {name: float}}``; numbers that JSON lacks stand as the
texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, so every line is JSON that any reader takes.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
"""Name of rank 0's spool in a run's output folder."""
MOST_UNWRITTEN = 10_000
"""Rows kept in memory while the disk refuses them; the oldest go first."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured at one step."""

    step: int
    """Optimizer step, 1-based."""
    time: float
    """Unix seconds at which it was logged."""
    attempt: int
    """Which start of the run computed it, 1-based; a resumed run is a new attempt."""
    metrics: dict[str, float]
    """By name (``tracking/metrics.py``); empty in the row that marks where an attempt begins."""


class Spool:
    """Appends rows to a file, each in one write, and outlives a full or failing disk.

    A row that cannot be written waits in memory for the next one; the first refusal is warned about, once.
    """

    def __init__(self, path: Path, *, attempt: int | None = None) -> None:
        """Opens ``path`` for a new attempt: ``attempt``, or more when the file has already seen that one."""
        self.path = path
        self._has_warned = False
        self.attempt = max(attempt or 1, 1 + self._last_attempt())
        self.unwritten: deque[Row] = deque(maxlen=MOST_UNWRITTEN)
        self._descriptor: int | None = None
        self._mid_line = False

    def append(self, step: int, metrics: Mapping[str, float]) -> Row:
        """Write the metrics of ``step``. Never raises for the disk's sake."""
        row = Row(step=step, time=time.time(), attempt=self.attempt, metrics=dict(metrics))
        self.unwritten.append(row)
        self._write_all()
        return row

    def close(self) -> None:
        """Write what waits, if it can be, and give the file back; appending opens it again."""
        self._write_all()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _last_attempt(self) -> int:
        try:
            return max((row.attempt for row in all_rows(self.path)), default=0)
        except OSError as refusal:
            self._warn(refusal)
            return 0

    def _write_all(self) -> None:
        try:
            descriptor = self._opened()
            while self.unwritten:
                self._write(descriptor, encode(self.unwritten[0]))
                self.unwritten.popleft()
        except OSError as refusal:
            self._warn(refusal)

    def _opened(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._mid_line = _ends_mid_line(self.path)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return self._descriptor

    def _write(self, descriptor: int, line: bytes) -> None:
        line = b"\n" + line if self._mid_line else line
        written = os.write(descriptor, line)
        # A full disk may take part of a line: readers skip the torn part, the whole line follows later.
        self._mid_line = 0 < written < len(line) or (self._mid_line and written == 0)
        if written < len(line):
            raise OSError(f"{written} of {len(line)} bytes written")

    def _warn(self, refusal: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("metrics cannot be written to %s (%s); training goes on", self.path, refusal)


def rows_after(path: Path, offset: int, *, most_bytes: int = 1 << 20) -> tuple[tuple[Row, ...], int]:
    """Rows of the whole lines from byte ``offset`` on, about ``most_bytes`` of them, and the offset after them."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            chunk = file.read(most_bytes)
    except FileNotFoundError:
        return (), offset
    whole = chunk[: chunk.rfind(b"\n") + 1]
    return tuple(row for line in whole.splitlines() if (row := decode(line)) is not None), offset + len(whole)


def encode(row: Row) -> bytes:
    """One line of the spool, with its newline."""
    metrics = {name: _number(value) for name, value in row.metrics.items()}
    document = {"step": row.step, "time": round(row.time, 3), "attempt": row.attempt, "metrics": metrics}
    return json.dumps(document, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Row | None:
    """The row in ``line``, or None when the line is torn."""
    try:
        document: dict[str, Any] = json.loads(line)
        metrics = {str(name): float(value) for name, value in document["metrics"].items()}
        return Row(
            step=int(document["step"]),
            time=float(document["time"]),
            attempt=int(document.get("attempt", 1)),
            metrics=metrics,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def all_rows(path: Path) -> tuple[Row, ...]:
    """Every row of the file as written, of all attempts; none when the file is absent."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(row for line in lines if (row := decode(line)) is not None)


def read_rows(path: Path) -> tuple[Row, ...]:
    """One row per step that counts, by step; torn lines are skipped.

    Where a later attempt began again at an earlier step, what the earlier attempts did from there on is superseded.
    Rows of the same step and attempt (training and evaluation, say) are joined.
    """
    return effective(all_rows(path))


def effective(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows that count, one per step, by step (see ``read_rows``)."""
    by_attempt: dict[int, list[Row]] = {}
    for row in rows:
        by_attempt.setdefault(row.attempt, []).append(row)
    kept: dict[int, Row] = {}
    for attempt in sorted(by_attempt):
        first = min(row.step for row in by_attempt[attempt])
        kept = {step: row for step, row in kept.items() if step < first}
        for row in by_attempt[attempt]:
            before = kept.get(row.step)
            kept[row.step] = replace(row, metrics=before.metrics | row.metrics) if before else row
    return tuple(kept[step] for step in sorted(kept) if kept[step].metrics)


def _number(value: float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _ends_mid_line(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # absent, or empty
        return False
