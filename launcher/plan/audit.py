"""Measurements beside predictions: rows in, comparison and summary out. Reads no file itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from statistics import median, quantiles
from typing import TYPE_CHECKING

from launcher.plan.calibration import shipped
from launcher.plan.confidence import half_width, outside_reasons, regime
from launcher.plan.memory import reported_bytes, total_bytes, verdict
from launcher.plan.published_row import published_row
from launcher.plan.step_time import step
from launcher.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.plan.calibration import Calibration
    from launcher.plan.plan import Calibration as Inside
    from launcher.plan.plan import Verdict
    from launcher.plan.published_row import PublishedRow, Row

EXCLUDED = {
    "hybrid": "hybrid state-space model, no shape printed in the table",
}
"""Kinds of rows that cannot be predicted, and why. Every excluded row is named in the answer."""
SCHEMA = ("id", "table", "model", "L", "h", "heads", "gpu", "ngpus", "stack", "sw", "gbs")
"""Columns without which a table holds no training runs (tests/published/README.md)."""


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One measurement beside its prediction."""

    id: str
    table: str
    regime: str
    """``megatron, fsdp, context, experts, ...``: which measurements it resembles (``confidence.py``)."""
    measured_step_seconds: float | None
    predicted_step_seconds: float
    low_seconds: float
    high_seconds: float
    measured_memory_gib: float | None
    predicted_memory_gib: float
    """What the report counts, not always all of the device."""
    fits: bool | None
    """Whether it ran, where somebody says so."""
    verdict: Verdict
    """What the planner says of all of the device's memory."""
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
    misjudged: tuple[str, ...]
    """Rows that ran out of memory and are called ``fits``, or ran and are called ``does_not_fit``."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All rows, what was left out and why, and summaries: all, dense, context-parallel, experts, then a table each."""

    rows: tuple[AuditRow, ...]
    excluded: tuple[tuple[str, str], ...]
    summary: tuple[Summary, ...]


def read_rows(rows: Iterable[Row]) -> tuple[list[PublishedRow], list[tuple[str, str]]]:
    """The rows that can be predicted, and the names of the others with the reason."""
    kept: list[PublishedRow] = []
    excluded: list[tuple[str, str]] = []
    for row in rows:
        try:
            reason = EXCLUDED.get(row.get("kind", ""))
            if reason is None:
                kept.append(published_row(row))
                continue
        except (ValueError, KeyError) as error:
            reason = str(error)
        excluded.append((row.get("id", "?"), reason))
    return kept, excluded


def audit(
    rows: Iterable[PublishedRow], excluded: Iterable[tuple[str, str]] = (), constants: Calibration | None = None
) -> Audit:
    """Every row beside its prediction."""
    compared = [compare(row, constants or shipped()) for row in rows]
    return Audit(
        rows=tuple(compared),
        excluded=tuple(excluded),
        summary=tuple(summarise(name, members) for name, members in _groups(compared).items()),
    )


def compare(row: PublishedRow, constants: Calibration) -> AuditRow:
    """One row beside its prediction."""
    work = row.workload
    seconds, width = step(work, constants).seconds, half_width(work)
    room = work.hardware.accelerator.usable_gib
    return AuditRow(
        id=row.id,
        table=row.table,
        regime=regime(work),
        measured_step_seconds=row.step_seconds,
        predicted_step_seconds=seconds,
        low_seconds=seconds * exp(-width),
        high_seconds=seconds * exp(width),
        measured_memory_gib=row.memory_gib,
        predicted_memory_gib=reported_bytes(work, row.memory_kind) / GIB,
        fits=None if row.memory_kind in ("states", "activations") else row.fits,
        verdict=verdict(round(total_bytes(work)), None if room is None else round(room * GIB)),
        calibration="outside" if outside_reasons(work) else "inside",
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
        misjudged=tuple(row.id for row in rows if _is_misjudged(row)),
    )


def _is_misjudged(row: AuditRow) -> bool:
    return row.verdict == {True: "does_not_fit", False: "fits"}.get(row.fits) if row.fits is not None else False


def _groups(rows: Sequence[AuditRow]) -> dict[str, list[AuditRow]]:
    """Rows by what they resemble, then by table; groups without rows left out."""
    groups = {
        "all": list(rows),
        "dense": [row for row in rows if row.regime != "experts"],
        "context parallel": [row for row in rows if row.regime == "context"],
        "experts": [row for row in rows if row.regime == "experts"],
    }
    for row in rows:
        groups.setdefault(row.table, []).append(row)
    return {name: members for name, members in groups.items() if members}
