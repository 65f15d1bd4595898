"""MLflow's REST interface on the runs of the workspace: a job's run has the job's name and is there from the start.

Paths and shapes: mlflow.org REST API 2.0. A job speaks to it with plain HTTP inside this machine; a reader outside with
its token through the workspace's data plane.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from launcher.emulator.messages import RefusedError, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.emulator.workspace import Workspace

Point = dict[str, Any]
_STATUSES = {"Completed": "FINISHED", "Failed": "FAILED", "Canceled": "KILLED", "NotStarted": "SCHEDULED"}


@dataclass(kw_only=True)
class Run:
    """What was logged to one run."""

    run_id: str
    experiment: str
    start_time: int = field(default_factory=lambda: int(time.time() * 1000))
    metrics: dict[str, list[Point]] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class MlflowApi:
    """Answers ``.../api/2.0/mlflow/...``."""

    def __init__(self, workspace: Workspace, artifact_root: str) -> None:
        self._workspace = workspace
        self._artifact_root = artifact_root
        self.runs: dict[str, Run] = {}
        self._verbs: dict[str, Callable[[dict[str, Any]], Any]] = {
            "runs/get": lambda asked: {"run": self._document(self._run(asked))},
            "runs/update": self._update,
            "runs/log-batch": self._log_batch,
            "runs/log-metric": lambda asked: self._log(self._run(asked), metrics=[asked]),
            "runs/log-parameter": lambda asked: self._log(self._run(asked), params=[asked]),
            "runs/set-tag": lambda asked: self._log(self._run(asked), tags=[asked]),
            "metrics/get-history": self._history,
            "experiments/get": lambda asked: {"experiment": self._experiment(asked["experiment_id"])},
            "experiments/get-by-name": lambda asked: {"experiment": self._experiment(asked["experiment_name"])},
            "artifacts/list": lambda asked: {"root_uri": self._root(self._run(asked).run_id), "files": []},
        }

    def answer(self, request: Request) -> Response:
        """One call."""
        verb = request.path.partition("/api/2.0/mlflow/")[2]
        if verb not in self._verbs:
            raise RefusedError(404, "ENDPOINT_NOT_FOUND", f"the emulator has no mlflow {verb}")
        asked = dict(request.query) if request.method == "GET" else request.document()
        with self._workspace.lock:
            return Response(document=self._verbs[verb](asked) or {})

    def _run(self, asked: dict[str, Any]) -> Run:
        name = asked.get("run_id") or asked.get("run_uuid") or ""
        job = self._workspace.jobs.get(name.lower())
        if job is None:
            raise RefusedError(404, "RESOURCE_DOES_NOT_EXIST", f"Run '{name}' not found")
        return self.runs.setdefault(job.name, Run(run_id=job.name, experiment=job.properties["experimentName"]))

    def _update(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"run_info": self._info(self._run(asked))}

    def _log_batch(self, asked: dict[str, Any]) -> None:
        self._log(self._run(asked), **{name: asked.get(name) or [] for name in ("metrics", "params", "tags")})

    def _log(
        self, run: Run, *, metrics: list[Point] | None = None, params: list[Point] | None = None,
        tags: list[Point] | None = None,
    ) -> None:  # fmt: skip
        for parameter in params or []:
            known = run.params.setdefault(parameter["key"], parameter["value"])
            if known != parameter["value"]:
                raise RefusedError(
                    400, "INVALID_PARAMETER_VALUE", f"Changing param values is not allowed: {parameter['key']}"
                )
        for point in metrics or []:
            kept = {name: point.get(name) for name in ("key", "value", "timestamp", "step")}
            run.metrics.setdefault(point["key"], []).append(kept)
        run.tags.update({tag["key"]: tag["value"] for tag in tags or []})

    def _history(self, asked: dict[str, Any]) -> dict[str, Any]:
        points = self._run(asked).metrics.get(asked.get("metric_key", ""), [])
        start, most = int(asked.get("page_token") or 0), int(asked.get("max_results") or 25_000)
        page: dict[str, Any] = {"metrics": points[start : start + most]}
        return page | ({"next_page_token": str(start + most)} if len(points) > start + most else {})

    def _document(self, run: Run) -> dict[str, Any]:
        latest = [
            max(points, key=lambda point: (point["step"] or 0, point["timestamp"])) for points in run.metrics.values()
        ]
        pairs = {"params": run.params, "tags": run.tags}
        data = {name: [{"key": key, "value": value} for key, value in of.items()] for name, of in pairs.items()}
        return {"info": self._info(run), "data": {"metrics": latest, **data}, "inputs": {}}

    def _info(self, run: Run) -> dict[str, Any]:
        job = self._workspace.jobs[run.run_id.lower()]
        return {
            "run_id": run.run_id,
            "run_uuid": run.run_id,
            "run_name": job.properties.get("displayName") or run.run_id,
            "experiment_id": run.experiment,
            "user_id": "emulator",
            "status": _STATUSES.get(job.state, "RUNNING"),
            "start_time": run.start_time,
            "end_time": int(job.times[job.state] * 1000) if job.has_ended else None,
            "artifact_uri": self._root(run.run_id),
            "lifecycle_stage": "active",
        }

    def _experiment(self, name: str) -> dict[str, Any]:
        return {
            "experiment_id": name,
            "name": name,
            "artifact_location": self._artifact_root,
            "lifecycle_stage": "active",
            "tags": [],
        }

    def _root(self, run_id: str) -> str:
        return f"{self._artifact_root}/{run_id}/artifacts"
