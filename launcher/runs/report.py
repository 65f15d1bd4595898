"""Promised beside measured: a run's plan, its metric rows, and a verdict. Pure but for ``read_run``."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from launcher.errors import NoSuchRunError
from launcher.plan import codec
from launcher.tracking import metrics
from launcher.tracking.spool import METRICS_FILE, Row, all_rows, effective
from launcher.units import SECONDS_PER_HOUR, format_bytes, format_count, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from launcher.plan.plan import Plan

Unit = Literal["seconds", "hours", "bytes", "tokens/s", "fraction", "dollars", "steps"]
MOST_WARM_UP_ROWS = 5
"""Rows at the start of each attempt that count for no speed: caches, allocators and compilers are still cold."""
CPU_MEMORY = (
    "On a CPU, measured memory is the resident set of the largest rank, with Python and torch themselves in it "
    "(several hundred MiB); the plan counts what the model and its batch need."
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One quantity, planned and measured; None where nobody knows it."""

    name: str
    """Its name in the report's JSON."""
    label: str
    unit: Unit
    planned: float | None
    """Of the steps that were done, where the run ended early."""
    measured: float | None
    low: float | None = None
    """Lower end of the planned interval, where the plan gives one."""
    high: float | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over planned."""
        return None if self.measured is None or not self.planned else self.measured / self.planned

    @property
    def verdict(self) -> str | None:
        """Where the measured value lies; None without an interval or a measurement."""
        if self.measured is None or self.low is None or self.high is None:
            return None
        if self.measured < self.low:
            return "below the interval"
        return "above the interval" if self.measured > self.high else "inside the interval"


@dataclass(frozen=True, kw_only=True)
class Share:
    """Part of the time between the first step and the last row, 0..1."""

    name: str
    measured: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of a run, beside what its plan said."""

    handle: str
    state: str
    """Azure ML's word."""
    recipe_name: str
    recipe_digest: str
    plan_digest: str
    hardware: str
    attempts: int
    loss_first: float | None
    """Training loss of the first step logged, nats per token."""
    loss_last: float | None
    evaluation_loss: float | None
    """The last one, nats per token."""
    evaluation_step: int | None
    figures: tuple[Figure, ...]
    shares: tuple[Share, ...]
    """Where the time went; they sum to 1."""
    notes: tuple[str, ...]
    """What to know before comparing, a sentence each."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a run leaves behind that a report needs."""

    plan: Plan
    recipe: dict[str, Any]
    """The codec's JSON form."""
    rows: tuple[Row, ...]
    """All of them, superseded ones too (``spool.all_rows``)."""


def read_run(folder: Path) -> RunRecord:
    """The record in a run's folder: ``plan.json``, ``recipe.json``, ``output/metrics.jsonl`` (which may lack).

    Raises:
        NoSuchRunError: the folder holds no run.
    """
    try:
        plan, recipe = (json.loads((folder / name).read_bytes()) for name in ("plan.json", "recipe.json"))
        return RunRecord(plan=codec.decode(plan), recipe=recipe, rows=all_rows(folder / "output" / METRICS_FILE))
    except (OSError, ValueError, KeyError) as fault:
        raise NoSuchRunError(f"{folder} holds no run that can be read ({fault})", code="report.unreadable") from fault


def make_report(plan: Plan, rows: Sequence[Row], *, handle: str, state: str) -> Report:
    """Planned beside measured. ``rows`` are all rows of the spool, those of superseded steps too: time was spent there.

    Speeds are medians over steps, without the first of each attempt; losses are as logged.
    """
    counted = effective(rows)
    losses = _values(counted, metrics.LOSS)
    evaluations = [row for row in counted if metrics.EVALUATION_LOSS in row.metrics]
    return Report(
        handle=handle,
        state=state,
        recipe_name=plan.recipe_name,
        recipe_digest=plan.recipe_digest,
        plan_digest=plan.plan_digest,
        hardware=plan.hardware,
        attempts=len({row.attempt for row in rows}),
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        evaluation_loss=evaluations[-1].metrics[metrics.EVALUATION_LOSS] if evaluations else None,
        evaluation_step=evaluations[-1].step if evaluations else None,
        figures=tuple(_figures(plan, rows, counted)),
        shares=tuple(_shares(rows)),
        notes=tuple(_notes(plan, counted)),
    )


def encode(report: Report) -> dict[str, Any]:
    """The report as plain JSON values: ``planned`` and ``measured`` by name, and ``ratio`` and ``verdict`` of each."""
    losses = ("loss_first", "loss_last", "evaluation_loss", "evaluation_step")
    measured: dict[str, float | None] = {name: getattr(report, name) for name in losses}
    figures = {figure.name: figure for figure in report.figures}
    measured |= {name: figure.measured for name, figure in figures.items()}
    return {
        "handle": report.handle,
        "state": report.state,
        "recipe": {"name": report.recipe_name, "digest": report.recipe_digest},
        "plan_digest": report.plan_digest,
        "hardware": report.hardware,
        "attempts": report.attempts,
        "planned": {name: figure.planned for name, figure in figures.items()},
        "measured": {name: _finite(value) for name, value in measured.items()},
        "interval": {name: [figure.low, figure.high] for name, figure in figures.items() if figure.low is not None},
        "ratio": {name: figure.ratio for name, figure in figures.items()},
        "verdict": {name: figure.verdict for name, figure in figures.items() if figure.verdict},
        "shares": {share.name: share.measured for share in report.shares},
        "notes": list(report.notes),
    }


def cells(figure: Figure) -> tuple[str, str, str, str, str]:
    """A figure as a table's row: label, planned (with its interval), measured, ratio, verdict."""
    planned = _text(figure.planned, figure.unit)
    if figure.low is not None and figure.high is not None:
        planned += f" [{_text(figure.low, figure.unit)}, {_text(figure.high, figure.unit)}]"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return figure.label, planned, _text(figure.measured, figure.unit), ratio, figure.verdict or ""


def _figures(plan: Plan, rows: Sequence[Row], counted: Sequence[Row]) -> Iterator[Figure]:
    steps = max((row.step for row in counted if metrics.LOSS in row.metrics), default=0)
    part = steps / plan.batch.train_steps
    hours = _seconds(rows) / SECONDS_PER_HOUR if counted else None
    price, warm, time = plan.cost.dollars_per_hour, warm_rows(counted), plan.time
    yield Figure(
        name="step_seconds", label="step", unit="seconds",
        planned=time.step_seconds, low=time.low_seconds, high=time.high_seconds,
        measured=_median(warm, metrics.STEP_SECONDS),
    )  # fmt: skip
    yield Figure(
        name="tokens_per_second", label="tokens a second", unit="tokens/s",
        planned=time.tokens_per_second, measured=_median(warm, metrics.TOKENS_PER_SECOND),
    )  # fmt: skip
    yield Figure(name="mfu", label="MFU", unit="fraction", planned=time.mfu, measured=_median(warm, metrics.MFU))
    yield _memory(plan, measured=max(_values(counted, metrics.PEAK_MEMORY_BYTES), default=None))
    yield Figure(name="hours", label="running time", unit="hours", planned=time.hours * part, measured=hours)
    yield Figure(
        name="dollars", label="dollars", unit="dollars",
        planned=None if plan.cost.dollars is None else plan.cost.dollars * part,
        measured=None if hours is None or price is None else hours * price,
    )  # fmt: skip
    yield Figure(name="steps", label="steps", unit="steps", planned=plan.batch.train_steps, measured=steps)


def _memory(plan: Plan, *, measured: float | None) -> Figure:
    """No interval, and so no verdict, for a CPU: a rank's resident set holds more than the plan counts."""
    figure = Figure(
        name="peak_memory_bytes", label="peak memory per rank", unit="bytes",
        planned=plan.memory.bytes_per_gpu, measured=measured,
    )  # fmt: skip
    return figure if _is_cpu(plan) else replace(figure, low=plan.memory.low_bytes, high=plan.memory.high_bytes)


def _is_cpu(plan: Plan) -> bool:
    return "x CPU" in plan.hardware


def _shares(rows: Iterable[Row]) -> Iterator[Share]:
    """Where the time of all attempts went. A row's step times are means over the steps since the row before."""
    spent = dict.fromkeys(("compute", "waiting for data", "evaluation", "checkpoints"), 0.0)
    rows = tuple(rows)
    for attempt in _by_attempt(rows):
        before = attempt[0].step - 1
        for row in attempt:
            if metrics.STEP_SECONDS in row.metrics:
                steps, before = row.step - before, row.step
                spent["compute"] += steps * row.metrics.get(metrics.COMPUTE_SECONDS, 0.0)
                spent["waiting for data"] += steps * row.metrics.get(metrics.DATA_SECONDS, 0.0)
            spent["evaluation"] += row.metrics.get(metrics.EVALUATION_SECONDS, 0.0)
            spent["checkpoints"] += row.metrics.get(metrics.CHECKPOINT_SECONDS, 0.0)
    whole = max(_seconds(rows), sum(spent.values()))
    if whole:
        yield from (Share(name=name, measured=seconds / whole) for name, seconds in spent.items())
        yield Share(name="other", measured=1 - sum(spent.values()) / whole)


def _notes(plan: Plan, counted: Sequence[Row]) -> Iterator[str]:
    steps = max((row.step for row in counted if metrics.LOSS in row.metrics), default=0)
    if not counted:
        yield "The run left no metrics: it ended before its first step, or its script writes none."
    elif steps < plan.batch.train_steps:
        yield (
            f"{steps:,} of {plan.batch.train_steps:,} steps were done; "
            "running time and dollars are planned for these steps alone."
        )
    if plan.calibration == "outside":
        yield "The plan lies outside its calibration: its figures are estimates nobody has measured on such a machine."
    diverged = next((row.step for row in counted if not math.isfinite(row.metrics.get(metrics.LOSS, 0.0))), None)
    if diverged is not None:
        yield f"The loss is no number from step {diverged:,} on: the run has diverged."
    if counted and _is_cpu(plan):
        yield CPU_MEMORY


def _seconds(rows: Iterable[Row]) -> float:
    """From first to last row, summed over the attempts."""
    return sum(attempt[-1].time - attempt[0].time for attempt in _by_attempt(rows))


def _by_attempt(rows: Iterable[Row]) -> list[list[Row]]:
    attempts: dict[int, list[Row]] = {}
    for row in rows:
        attempts.setdefault(row.attempt, []).append(row)
    return list(attempts.values())


def warm_rows(counted: Iterable[Row]) -> list[Row]:
    """Rows with a step time, without the first of each attempt: a fifth of them, at most MOST_WARM_UP_ROWS."""
    timed = [row for row in counted if metrics.STEP_SECONDS in row.metrics]
    return [row for rows in _by_attempt(timed) for row in rows[min(MOST_WARM_UP_ROWS, len(rows) // 5) :]]


def _values(rows: Iterable[Row], name: str) -> list[float]:
    return [row.metrics[name] for row in rows if name in row.metrics]


def _median(rows: Iterable[Row], name: str) -> float | None:
    values = _values(rows, name)
    return median(values) if values else None


def _finite(value: float | None) -> float | None:
    """JSON has no NaN; a note says that the loss became one."""
    return value if value is None or math.isfinite(value) else None


def _text(value: float | None, unit: Unit) -> str:
    match value, unit:
        case None, _:
            return "unknown"
        case _, "seconds":
            return format_seconds(value)
        case _, "hours":
            return format_seconds(value * SECONDS_PER_HOUR)
        case _, "bytes":
            return format_bytes(value)
        case _, "tokens/s":
            return format_count(value)
        case _, "fraction":
            return f"{100 * value:.1f} %"
        case _, "dollars":
            return format_dollars(value)
        case _:
            return f"{value:,.0f}"
