"""One's own runs as measurements: a recipe and its metrics become a row to audit, or to calibrate with."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from launcher.errors import LauncherError
from launcher.plan.planner import workload_from
from launcher.plan.published_row import PublishedRow
from launcher.recipe.codec import decode
from launcher.runs.report import warm_rows
from launcher.tracking import metrics
from launcher.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.recipe.schema import Recipe
    from launcher.tracking.mlflow_runs import TrackedRun
    from launcher.tracking.spool import Row


def measured_runs(runs: Iterable[TrackedRun], *, table: str) -> tuple[list[PublishedRow], list[tuple[str, str]]]:
    """The runs that can be compared with a prediction, and the names of the others with the reason."""
    kept: list[PublishedRow] = []
    excluded: list[tuple[str, str]] = []
    for run in runs:
        if run.recipe is None:
            excluded.append((run.name, "no recipe.json among its artifacts: not a run of ours"))
        elif not warm_rows(run.rows):
            excluded.append((run.name, f"no {metrics.STEP_SECONDS} was logged"))
        else:
            try:
                kept.append(measured_run(decode(run.recipe), run.rows, name=run.name, table=table))
            except LauncherError as error:
                excluded.append((run.name, str(error)))
    return kept, excluded


def measured_run(recipe: Recipe, rows: Sequence[Row], *, name: str, table: str) -> PublishedRow:
    """The median step without warm-up, and the largest allocation (none on a CPU: Python's own memory is in it).

    Raises:
        PlanError: nothing can be predicted of the recipe.
    """
    workload = workload_from(recipe)
    peak = max((row.metrics.get(metrics.PEAK_MEMORY_BYTES, 0.0) for row in rows), default=0.0)
    is_cpu = workload.hardware.accelerator.architecture == "cpu"
    return PublishedRow(
        id=name,
        table=table,
        group=name,
        workload=workload,
        step_seconds=median(row.metrics[metrics.STEP_SECONDS] for row in warm_rows(rows)),
        memory_gib=None if is_cpu or not peak else peak / GIB,
        memory_kind="allocated",
        fits=None if is_cpu else True,
        note="",
    )
