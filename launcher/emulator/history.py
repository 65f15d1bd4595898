"""Run history: how a run stands in detail, where its logs lie, and MLflow's interface beside it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from launcher.emulator.blobs import blob_url
from launcher.emulator.messages import RefusedError, Request, Response
from launcher.emulator.workspace import ARTIFACT_DATASTORE, CONTAINERS

if TYPE_CHECKING:
    from launcher.emulator.jobs import Jobs
    from launcher.emulator.mlflow_api import MlflowApi
    from launcher.emulator.workspace import Job, Workspace

_BELOW_WORKSPACE = re.compile(r"(?i)/(\w+)/v[\d.]+/subscriptions/[^/]+/.*?/workspaces/[^/]+/(.*)")
_RUN = re.compile(r"(?:experiments/[^/]+/|experimentids/[^/]+/)?runs/([^/]+)(?:/(details|children))?")
_DISCOVERED = ("api", "catalog", "experimentation", "history", "hyperdrive", "modelmanagement", "pipelines", "studio")


class History:
    """Answers requests to the workspace's data plane."""

    def __init__(self, workspace: Workspace, jobs: Jobs, mlflow: MlflowApi) -> None:
        self._workspace = workspace
        self._jobs = jobs
        self._mlflow = mlflow

    def answer(self, request: Request) -> Response:
        """Whatever lies at the path."""
        if request.path == "/discovery":
            return Response(document=dict.fromkeys(_DISCOVERED, self._workspace.settings.data_plane))
        if "/api/2.0/mlflow/" in request.path:
            return self._mlflow.answer(request)
        match = _BELOW_WORKSPACE.fullmatch(request.path)
        service, tail = match.groups() if match else ("", "")
        if service == "history":
            return self._history(request, tail)
        raise RefusedError(404, "NotFound", f"the emulator has nothing at {request.method} {request.path}")

    def _history(self, request: Request, tail: str) -> Response:
        if tail == "rundata":
            job = self._jobs.find(request.document().get("runId", ""))
            return Response(document={"runMetadata": self._run(job) | {"outputs": {}}})
        match = _RUN.fullmatch(tail)
        if match is None:
            raise RefusedError(404, "NotFound", tail)
        job = self._jobs.find(match[1])
        if match[2] == "children":
            return Response(document={"value": []})
        if request.method == "PATCH":
            self._patch(job, request.document())
        return Response(document=self._details(job) if match[2] == "details" else self._run(job))

    def _patch(self, job: Job, wanted: dict[str, Any]) -> None:
        with self._workspace.lock:
            names = {"displayName": "displayName", "description": "description", "hidden": "isArchived"}
            for name, property_name in names.items():
                if wanted.get(name) is not None:
                    job.properties[property_name] = wanted[name]
            job.properties["tags"].update(wanted.get("tags") or {})

    def _run(self, job: Job) -> dict[str, Any]:
        return {
            "runId": job.name,
            "status": job.state,
            "tags": job.properties["tags"],
            "properties": job.properties["properties"],
            "startTimeUtc": _time(job, "Running"),
            "endTimeUtc": _time(job, job.state) if job.has_ended else None,
            "error": {"error": job.error} if job.error else None,
        }

    def _details(self, job: Job) -> dict[str, Any]:
        with self._workspace.lock:
            logs = {path: blob_url(CONTAINERS[ARTIFACT_DATASTORE], blob) for path, blob in sorted(job.logs.items())}
            warnings = [{"message": f"The job is waiting: {job.waits_for}"}] if job.waits_for else []
            return self._run(job) | {
                "target": (job.properties.get("computeId") or "serverless").rpartition("/")[2],
                "warnings": warnings,
                "logFiles": logs,
            }


def _time(job: Job, state: str) -> str | None:
    moment = job.times.get(state)
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z") if moment else None
