"""Published measurements beside predictions: rows in, comparison and summary out. Reads no file itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from statistics import median, quantiles
from typing import TYPE_CHECKING

from launcher.plan.calibration import shipped
from launcher.plan.confidence import half_width, outside_reasons, regime
from launcher.plan.published_row import published_row
from launcher.plan.step_time import step
from launcher.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.plan.calibration import Calibration
    from launcher.plan.plan import Calibration as Inside
    from launcher.plan.published_row import PublishedRow, Row

EXCLUDED = {
    "hybrid": "hybrid state-space model, no shape printed in the table",
}
"""Kinds of rows that cannot be predicted, and why. Every excluded row is named in the answer."""


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One measurement beside its prediction."""

    id: str
    table: str
    regime: str
    measured_step_seconds: float | None
    predicted_step_seconds: float
    low_seconds: float
    high_seconds: float
    measured_memory_gib: float | None
    predicted_memory_gib: float
    calibration: Inside


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How far predictions were off; errors are |ln(predicted / measured)|."""

    group: str
    rows: int
    median_error: float | None
    ninetieth_percentile: float | None
    bias: float | None
    """Mean of ln(predicted / measured): positive when predictions are too slow."""
    coverage: float | None
    """Share of measurements inside the interval."""
    memory_rows: int
    median_memory_error: float | None


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All rows, what was left out and why, and summaries: all rows first, then a table each."""

    rows: tuple[AuditRow, ...]
    excluded: tuple[tuple[str, str], ...]
    summary: tuple[Summary, ...]


def audit(rows: Iterable[Row], constants: Calibration | None = None) -> Audit:
    """Predict every row that can be predicted."""
    kept: list[AuditRow] = []
    excluded: list[tuple[str, str]] = []
    for row in rows:
        reason = EXCLUDED.get(row.get("kind", ""))
        if reason is None:
            try:
                kept.append(compare(published_row(row), constants or shipped()))
                continue
            except (ValueError, KeyError) as error:
                reason = str(error)
        excluded.append((row.get("id", "?"), reason))
    tables = sorted({row.table for row in kept})
    groups = [("all", kept), *((table, [row for row in kept if row.table == table]) for table in tables)]
    summaries = tuple(summarise(name, members) for name, members in groups)
    return Audit(rows=tuple(kept), excluded=tuple(excluded), summary=summaries)


def compare(row: PublishedRow, constants: Calibration) -> AuditRow:
    """One row beside its prediction."""
    from launcher.plan.memory import reported_bytes

    seconds, width = step(row.workload, constants).seconds, half_width(row.workload)
    return AuditRow(
        id=row.id,
        table=row.table,
        regime=regime(row.workload),
        measured_step_seconds=row.step_seconds,
        predicted_step_seconds=seconds,
        low_seconds=seconds * exp(-width),
        high_seconds=seconds * exp(width),
        measured_memory_gib=row.memory_gib,
        predicted_memory_gib=reported_bytes(row.workload) / GIB,
        calibration="outside" if outside_reasons(row.workload) else "inside",
    )


def summarise(group: str, rows: Sequence[AuditRow]) -> Summary:
    """Errors of ``rows``."""
    timed = [row for row in rows if row.measured_step_seconds]
    errors = [log(row.predicted_step_seconds / (row.measured_step_seconds or 1)) for row in timed]
    sized = [row for row in rows if row.measured_memory_gib]
    gaps = [abs(log(row.predicted_memory_gib / (row.measured_memory_gib or 1))) for row in sized]
    sizes = [abs(error) for error in errors]
    covered = [row.low_seconds <= (row.measured_step_seconds or 0) <= row.high_seconds for row in timed]
    return Summary(
        group=group,
        rows=len(rows),
        median_error=median(sizes) if sizes else None,
        ninetieth_percentile=quantiles(sizes, n=10, method="inclusive")[-1] if len(sizes) > 1 else None,
        bias=sum(errors) / len(errors) if errors else None,
        coverage=sum(covered) / len(covered) if covered else None,
        memory_rows=len(sized),
        median_memory_error=median(gaps) if gaps else None,
    )
