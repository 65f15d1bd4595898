"""The door to MLflow: the only module that imports it. Used by the follower's process, never by a rank.

Everything MLflow raises becomes ``UnavailableError`` (try again later) or ``RefusedError`` (this will never be taken).
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from launcher.home import home
from launcher.recipe.redact import redact_text
from launcher.tracking.target import default_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from launcher.tracking.spool import Row
    from launcher.tracking.target import Target

PARAMETERS_PER_BATCH = 100
"""MLflow's own MAX_PARAMS_TAGS_PER_BATCH (mlflow/utils/validation.py, 3.17)."""
METRICS_PER_BATCH = 1000
"""MLflow's own MAX_METRICS_PER_BATCH (the same file)."""
AZURE_METRICS_PER_BATCH = 250
"""Rows a batch (Azure Machine Learning, "Manage resources and quotas", 2026-09)."""
AZURE_MOST_PARAMETERS = 200
"""``FieldName=Parameters, Limit=200`` (github.com/Azure/azure-sdk-for-python/issues/35685)."""
AZURE_LONGEST_PARAMETER, LONGEST_PARAMETER = 500, 6000
"""Characters of a value: MLflow's limit before 2.10, which Azure ML keeps, and since (mlflow/utils/validation.py)."""
LONGEST_TAG = 1000
"""Characters of a value, on Azure ML; MLflow itself takes more."""
REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_ALREADY_EXISTS", "MALFORMED_REQUEST"})
"""MLflow's error codes that say "not like this", where trying again would only repeat the answer."""
ENVIRONMENT = {
    # 120 s and 7 tries with doubling pauses by default: the follower tries again itself.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""How MLflow behaves in this process, unless the environment says otherwise."""


class UnavailableError(Exception):
    """MLflow cannot be reached, or will not answer now."""


class RefusedError(Exception):
    """MLflow answered, and will never take this."""


log = logging.getLogger(__name__)


class MlflowRun:
    """One run, opened. All methods may be called again after UnavailableError: nothing is counted twice."""

    def __init__(self, client: Any, target: Target, run: Any) -> None:
        self._client = client
        self._target = target
        self.run_id: str = run.info.run_id
        self.started_at: float = run.info.start_time / 1000
        """Unix seconds."""
        self._known: dict[str, str] = dict(run.data.params)

    def log_parameters(self, parameters: Mapping[str, str], *, attempt: int) -> int:
        """Log what is new; a value that changed since is logged as ``attemptN.NAME``. Returns how many did not fit."""
        longest = AZURE_LONGEST_PARAMETER if self._target.is_azure else LONGEST_PARAMETER
        wanted = {name: value[:longest] for name, value in parameters.items()}
        fresh = {name: value for name, value in wanted.items() if name not in self._known}
        changed = {name: value for name, value in wanted.items() if self._known.get(name, value) != value}
        fresh |= {
            name: value for key, value in changed.items() if (name := f"attempt{attempt}.{key}") not in self._known
        }
        room = AZURE_MOST_PARAMETERS - len(self._known) if self._target.is_azure else len(fresh)
        kept = dict(list(fresh.items())[: max(room, 0)])
        for batch in _batches(list(kept.items()), PARAMETERS_PER_BATCH):
            with _translated():
                self._log(params=[_entity("Param", *item) for item in batch])
            self._known |= dict(batch)
        return len(fresh) - len(kept)

    def log_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags."""
        for batch in _batches(list(tags.items()), PARAMETERS_PER_BATCH):
            with _translated():
                self._log(tags=[_entity("RunTag", name, value[:LONGEST_TAG]) for name, value in batch])

    def log_rows(self, rows: Iterable[Row]) -> None:
        """Log the metrics of ``rows``, by step and time."""
        points = [
            (name, value, round(row.time * 1000), row.step) for row in rows for name, value in row.metrics.items()
        ]
        for batch in _batches(points, AZURE_METRICS_PER_BATCH if self._target.is_azure else METRICS_PER_BATCH):
            with _translated():
                self._log(metrics=[_entity("Metric", *point) for point in batch])

    def log_artifact(self, path: Path) -> None:
        """Copy a file to the run."""
        with _translated():
            self._client.log_artifact(self.run_id, str(path))

    def end(self, status: str) -> None:
        """Say how it ended, where the run is ours to end: on Azure ML the job's own state says it."""
        if not self._target.is_azure:
            with _translated():
                self._client.set_terminated(self.run_id, status)

    def _log(self, **entities: Any) -> None:
        self._client.log_batch(self.run_id, **entities)


def open_run(target: Target, *, run_id: str | None) -> MlflowRun:
    """Attach to the environment's run, or go on with ``run_id`` of an earlier attempt, or create a run.

    Raises:
        UnavailableError: the server does not answer.
        RefusedError: the server will not have it.
        ModuleNotFoundError: MLflow is not installed.
    """
    mlflow = _mlflow()
    with _translated():
        if target.uri == f"sqlite:///{default_database()}":
            create_database(default_database())
        client = mlflow.MlflowClient(tracking_uri=target.uri)
        if target.attached_run_id:
            return MlflowRun(client, target, _attached(client, target.attached_run_id, earlier=run_id))
        return MlflowRun(client, target, _continued(client, run_id) or _created(client, target))


def join_run(target: Target, *, run_id: str) -> MlflowRun:
    """The run that another node has opened, as it is: it may have ended already.

    Raises:
        UnavailableError, RefusedError, ModuleNotFoundError: as ``open_run``.
    """
    mlflow = _mlflow()
    with _translated():
        client = mlflow.MlflowClient(tracking_uri=target.uri)
        return MlflowRun(client, target, client.get_run(run_id))


def _mlflow() -> Any:
    """MLflow, as quiet and as impatient as this process wants it."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow

    for name in ("mlflow", "alembic", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


def _attached(client: Any, own: str, *, earlier: str | None) -> Any:
    """The run of an earlier attempt, for one curve, where the server lets this job write to it; else the job's own."""
    import mlflow

    if earlier not in (None, own):
        try:
            client.set_tag(earlier, "continued_by", own)
            return client.get_run(earlier)
        except mlflow.MlflowException as answer:
            log.warning(
                "MLflow run %s cannot be continued (%s): this attempt has its own", earlier, _first_line(answer)
            )
    return client.get_run(own)


def create_database(path: Path) -> None:
    """Create MLflow's SQLite file unless it is there. Some seconds, under a lock, and whole or not at all.

    MLflow creates its tables by running some forty migrations, and two processes that do so at once break each other.
    """
    import filelock
    import mlflow

    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path.with_suffix(".lock")):
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            mlflow.MlflowClient(tracking_uri=f"sqlite:///{unfinished}").search_experiments()
            unfinished.rename(path)


def _continued(client: Any, run_id: str | None) -> Any:
    """The run of an earlier attempt, running again; None if there was none, or it is gone."""
    import mlflow

    if run_id is None:
        return None
    try:
        run = client.get_run(run_id)
    except mlflow.MlflowException as answer:
        if answer.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    if run.info.lifecycle_stage == "deleted":
        return None
    client.update_run(run_id, status="RUNNING")
    return run


def _created(client: Any, target: Target) -> Any:
    return client.create_run(_experiment_id(client, target), run_name=target.name)


def _experiment_id(client: Any, target: Target) -> str:
    """The experiment of that name, created when absent; a database of this machine keeps artifacts beside itself."""
    import mlflow

    found = client.get_experiment_by_name(target.experiment)
    if found is not None:
        return str(found.experiment_id)
    is_local = target.uri.startswith("sqlite:")
    folder = (home() / "mlartifacts" / target.experiment).as_uri() if is_local else None
    try:
        return str(client.create_experiment(target.experiment, artifact_location=folder))
    except mlflow.MlflowException:  # another run created it a moment ago
        return str(client.get_experiment_by_name(target.experiment).experiment_id)


def _entity(kind: str, *values: Any) -> Any:
    from mlflow import entities

    return getattr(entities, kind)(*values)


def _batches(items: list[Any], most: int) -> Iterator[list[Any]]:
    return (items[start : start + most] for start in range(0, len(items), most))


@contextmanager
def _translated() -> Iterator[None]:
    """Turn whatever MLflow, its stores and plugins raise into the two errors of this module."""
    import mlflow

    try:
        yield
    except mlflow.MlflowException as answer:
        kind = RefusedError if answer.error_code in REFUSALS else UnavailableError
        raise kind(_first_line(answer)) from answer
    except Exception as failure:  # a plugin's, a driver's or the network's own: which, no list could say
        raise UnavailableError(f"{type(failure).__name__}: {_first_line(failure)}") from failure


def _first_line(error: Exception) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return redact_text(line)[:200]
