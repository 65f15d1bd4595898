"""Runs of an experiment, read back from MLflow: what was asked, and what each step took."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.tracking import metrics
from launcher.tracking.mlflow_tracker import _mlflow, _translated
from launcher.tracking.spool import Row
from launcher.tracking.target import default_database

if TYPE_CHECKING:
    from collections.abc import Mapping

READ = (metrics.STEP_SECONDS, metrics.PEAK_MEMORY_BYTES)
"""Metrics an audit needs."""
MOST_RUNS = 1000
"""Newest first."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One run of an experiment."""

    name: str
    recipe: dict[str, Any] | None
    """The codec's JSON form; None where the run keeps no ``recipe.json``: it was not started by us."""
    rows: tuple[Row, ...]
    """Its metrics, a row a step."""


def tracked_runs(experiment: str, environment: Mapping[str, str]) -> tuple[TrackedRun, ...] | None:
    """The newest runs of ``experiment`` on the server the environment names, or in this machine's database.

    None: there is no such experiment.

    Raises:
        UnavailableError, RefusedError: as ``mlflow_tracker.open_run``.
        ModuleNotFoundError: MLflow is not installed.
    """
    uri = environment.get("MLFLOW_TRACKING_URI")
    if uri is None and not default_database().exists():
        return None
    mlflow = _mlflow()
    with _translated():
        client = mlflow.MlflowClient(tracking_uri=uri or f"sqlite:///{default_database()}")
        found = client.get_experiment_by_name(experiment)
        if found is None:
            return None
        runs = client.search_runs([found.experiment_id], max_results=MOST_RUNS)
        return tuple(_tracked(client, run) for run in runs)


def _tracked(client: Any, run: Any) -> TrackedRun:
    return TrackedRun(
        name=run.info.run_name or run.info.run_id, recipe=_recipe(client, run.info.run_id), rows=_rows(client, run)
    )


def _recipe(client: Any, run_id: str) -> dict[str, Any] | None:
    if not any(item.path == "recipe.json" for item in client.list_artifacts(run_id)):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(client.download_artifacts(run_id, "recipe.json", folder))
        recipe: dict[str, Any] = json.loads(path.read_bytes())
        return recipe


def _rows(client: Any, run: Any) -> tuple[Row, ...]:
    """Metrics of one step in one row; a step that was done twice keeps what came last."""
    steps: dict[int, Row] = {}
    for name in (name for name in READ if name in run.data.metrics):
        for point in client.get_metric_history(run.info.run_id, name):
            row = steps.setdefault(point.step, Row(step=point.step, time=point.timestamp / 1000, attempt=1, metrics={}))
            row.metrics[name] = point.value
    return tuple(steps[step] for step in sorted(steps))
