"""Jobs: accepted once by name, listed, cancelled. Every accepted job is one line of the ledger."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import time
from typing import TYPE_CHECKING, Any

from launcher.emulator import capacity
from launcher.emulator.messages import RefusedError, Request, Response
from launcher.emulator.settings import PROVIDER
from launcher.emulator.workspace import ARTIFACT_DATASTORE, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.emulator.workspace import Workspace

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}")
_MUTABLE = ("tags", "description", "displayName", "isArchived")
_IMMUTABLE = "A job with this name already exists. If you are trying to create a new job, use a different name. "
_IMMUTABLE_FIELDS = (
    "If you are trying to update an existing job, the existing job's {field} cannot be changed. Only description, "
    "tags, displayName, properties, and isArchived can be updated."
)


class Jobs:
    """Answers requests to ``.../jobs``."""

    def __init__(self, workspace: Workspace, start: Callable[[Job], None]) -> None:
        self._workspace = workspace
        self._start = start

    def answer(self, request: Request, parts: list[str]) -> Response:
        """List, put, get, patch or cancel."""
        if len(parts) == 1:
            with self._workspace.lock:
                newest_first = [self.document(job) for job in reversed(self._workspace.jobs.values())]
            return Response(document={"value": newest_first})
        name = parts[1]
        if len(parts) == 3 and parts[2].lower() == "cancel":
            return self._cancel(name)
        if request.method == "PUT":
            return self._put(name, request.document())
        if request.method == "GET":
            return Response(document=self.document(self.find(name)))
        raise RefusedError(405, "MethodNotAllowed", f"{request.method} of a job")

    def find(self, name: str) -> Job:
        """The job called ``name``; names differ in more than case."""
        found = self._workspace.jobs.get(name.lower())
        if found is None:
            raise RefusedError(404, "UserError", f"Run {name} was not found")
        return found

    def document(self, job: Job) -> dict[str, Any]:
        """The job as the service shows it."""
        with self._workspace.lock:
            properties = copy.deepcopy(job.properties) | {"status": job.state}
            return self._workspace.described(f"jobs/{job.name}", {"properties": properties})

    def _put(self, name: str, body: dict[str, Any]) -> Response:
        workspace = self._workspace
        with workspace.lock:
            workspace.puts[name] += 1
            known = workspace.jobs.get(name.lower())
            if known is not None:
                return self._put_again(known, body.get("properties") or {})
            properties = self._accepted_properties(name, body)
            job = Job(name=name, properties=properties)
            self._require_quota(job)
            workspace.jobs[name.lower()] = job
            digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
            workspace.accepted.append({"name": name, "time": time.time(), "body_digest": digest})
            workspace.enter(job, "NotStarted")
            answer = Response(status=201, document=self.document(job))
        self._start(job)
        return answer

    def _put_again(self, job: Job, asked: dict[str, Any]) -> Response:
        """A repeated PUT changes no job: it is an update of what may be updated, or refused."""
        for field in ("command", "codeId", "environmentId", "computeId"):
            if asked.get(field) is not None and asked[field] != job.properties.get(field):
                raise RefusedError(400, "UserError", _IMMUTABLE + _IMMUTABLE_FIELDS.format(field=field))
        if self._workspace.settings.repeated_put == "immutable":
            raise RefusedError(400, "UserError", _IMMUTABLE + _IMMUTABLE_FIELDS.format(field="properties"))
        job.properties.update({field: asked[field] for field in _MUTABLE if asked.get(field) is not None})
        return Response(document=self.document(job))

    def _accepted_properties(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        properties = copy.deepcopy(body.get("properties") or {})
        if not _NAME.fullmatch(name):
            raise RefusedError(400, "UserError", f"The job name {name!r} is not valid.")
        if properties.get("jobType") != "Command":
            raise RefusedError(400, "UserError", "The emulator runs command jobs.")
        for field in ("codeId", "environmentId", "computeId"):
            self._require(properties.get(field), field)
        properties.setdefault("experimentName", "Default")
        properties["tags"] = properties.get("tags") or {}
        properties["properties"] = properties.get("properties") or {}
        properties["services"] = self._services(name)
        uri = f"azureml://datastores/{ARTIFACT_DATASTORE}/ExperimentRun/dcid.{name}"
        default = {"jobOutputType": "uri_folder", "mode": "ReadWriteMount", "uri": uri}
        properties["outputs"] = (properties.get("outputs") or {}) | {"default": default}
        return properties

    def _require(self, reference: str | None, field: str) -> None:
        """A reference to something of this workspace must lead somewhere."""
        _, found, path = (reference or "").partition(f"{PROVIDER}/workspaces/{self._workspace.settings.workspace}/")
        if found and path.lower() not in self._workspace.resources:
            raise RefusedError(404, "UserError", f"{field}: {path} was not found in the workspace.")

    def _require_quota(self, job: Job) -> None:
        size = capacity.size_of(job, self._workspace)
        if size is None or size.quota_family is None:
            return
        wanted, allowed = capacity.cores_of(job, self._workspace), capacity.limit(size.quota_family, self._workspace)
        if wanted > allowed:
            raise RefusedError(
                400,
                "JobNodeCountExceedsCoreQuota",
                f"The specified subscription has a {size.quota_family} vCPU quota of {allowed} and is less than the "
                f"requested job node count of {job.nodes} which maps to {wanted} vCPUs",
            )

    def _cancel(self, name: str) -> Response:
        job = self.find(name)
        with self._workspace.changed:
            if not job.has_ended:
                job.wants_end = job.wants_end or "cancel"
                self._workspace.enter(job, "CancelRequested")
        location = f"https://management.azure.com{self._workspace.settings.workspace_path}/operations/{name}"
        return Response(status=202, headers={"Location": location, "Retry-After": "1"})

    def _services(self, name: str) -> dict[str, Any]:
        settings = self._workspace.settings
        empty = {"port": None, "status": None, "errorMessage": None, "properties": None}
        tracking = f"azureml://{settings.location}.api.azureml.ms/mlflow/v1.0{settings.workspace_path}?"
        studio = f"https://ml.azure.com/runs/{name}?wsid={settings.workspace_path}"
        return {
            "Tracking": {"endpoint": tracking, "jobServiceType": "Tracking", **empty},
            "Studio": {"endpoint": studio, "jobServiceType": "Studio", **empty},
        }
