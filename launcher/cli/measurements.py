"""``TABLE.csv ... | mlflow:EXPERIMENT``: the measurements that audit and calibrate take."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import BackendError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from launcher.plan.published_row import PublishedRow

MLFLOW = "mlflow:"
Excluded = list[tuple[str, str]]


def measurements(sources: Sequence[str]) -> tuple[list[PublishedRow], Excluded]:
    """The rows of all ``sources`` that can be predicted, and what was left out, with the reason.

    Raises:
        UsageError: a source that is not there, or no row at all.
        BackendError: MLflow does not answer.
    """
    kept: list[PublishedRow] = []
    excluded: Excluded = []
    for source in sources:
        rows, others = _tracked(source[len(MLFLOW) :]) if source.startswith(MLFLOW) else _table(Path(source))
        kept += rows
        excluded += others
    if not kept:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in excluded[:3])
        raise UsageError(
            f"no row of {', '.join(sources)} can be predicted ({reasons or 'there is none'})",
            allowed="tables with the columns of tests/published/README.md, or mlflow:EXPERIMENT",
        )
    return kept, excluded


def _table(path: Path) -> tuple[list[PublishedRow], Excluded]:
    from launcher.plan.audit import SCHEMA, read_rows

    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise UsageError(f"{path} cannot be read: {fault}", allowed="a CSV file in UTF-8") from fault
    lacking = [name for name in SCHEMA if rows and name not in rows[0]]
    if lacking or not rows:
        return [], [(str(path), f"holds no training runs: no column {', '.join(lacking)}" if rows else "is empty")]
    return read_rows(rows)


def _tracked(experiment: str) -> tuple[list[PublishedRow], Excluded]:
    from launcher.runs.measured import measured_runs
    from launcher.tracking.mlflow_runs import tracked_runs
    from launcher.tracking.mlflow_tracker import RefusedError, UnavailableError

    try:
        runs = tracked_runs(experiment, os.environ)
    except ModuleNotFoundError as fault:
        raise MissingExtraError("MLflow is not installed", suggestion="pip install 'launcher[mlflow]'") from fault
    except (UnavailableError, RefusedError) as fault:
        raise BackendError(f"MLflow does not answer: {fault}", code="mlflow") from fault
    if runs is None:
        raise UsageError(
            f"there is no MLflow experiment {experiment!r}",
            allowed="an experiment of the server MLFLOW_TRACKING_URI names, or of this machine's own database",
        )
    return measured_runs(runs, table=f"{MLFLOW}{experiment}")
