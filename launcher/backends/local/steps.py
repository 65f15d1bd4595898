"""How far a run got, and whether it still moves: read from the rows its first rank writes."""

from __future__ import annotations

import time
from statistics import quantiles
from typing import TYPE_CHECKING

from launcher.tracking.spool import all_rows, rows_after

if TYPE_CHECKING:
    from pathlib import Path

_USUAL_STEPS = 5
"""A step may take this many times the slowest usual one (99th percentile) before it counts as hung."""
_FIRST_STEP_SECONDS = 600
"""Imports, rendezvous, building the model and compiling come before the first row."""


def newest_step(metrics: Path) -> int:
    """The highest step any row tells of; -1 without rows."""
    return max((row.step for row in all_rows(metrics)), default=-1)


class StepClock:
    """Tells a hang from a slow step."""

    def __init__(self, metrics: Path, limit_seconds: float | None) -> None:
        self._metrics = metrics
        self._limit = limit_seconds
        self._offset = metrics.stat().st_size if metrics.exists() else 0
        self._gaps: list[float] = []
        self._rows = 0
        self._last = time.monotonic()

    def hang(self) -> str | None:
        """What is wrong when no row came for too long; None while all is well, or when no limit was asked for."""
        if self._limit is None:
            return None
        now = time.monotonic()
        if self._has_new_row():
            if self._rows:
                self._gaps.append(now - self._last)
            self._rows += 1
            self._last = now
        silence = now - self._last
        if silence <= self._patience(self._limit):
            return None
        return f"hung: no step for {silence:.0f} s (limits.hang_timeout_minutes); stacks are at the end of the logs"

    def _has_new_row(self) -> bool:
        rows, self._offset = rows_after(self._metrics, self._offset)
        return any(row.metrics for row in rows)

    def _patience(self, limit: float) -> float:
        if not self._rows:
            return max(limit, _FIRST_STEP_SECONDS)
        slowest = quantiles(self._gaps, n=100, method="inclusive")[-1] if len(self._gaps) > 1 else 0.0
        return max(limit, _USUAL_STEPS * slowest)
