"""The next attempt of a run that ended: the same job under the next name, in the same folder, so that it resumes."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml import known
from launcher.backends.azureml.assets import place_job_file
from launcher.backends.azureml.mounts import RUN_OUTPUT
from launcher.backends.azureml.storage import open_folder
from launcher.backends.azureml.submission import FINGERPRINT, submit_once
from launcher.errors import BackendError

if TYPE_CHECKING:
    from launcher.backends.azureml.client import Client, JobView
    from launcher.backends.azureml.submission import Outcome

PARENT_TAG = "launcher.parent"
_SERVICES_OWN = frozenset({"status", "parentJobName", "isArchived"})
_GIVEN_BY_THE_SERVICE = frozenset({"Studio", "Tracking"})


def next_name(name: str) -> str:
    """``run-5d0c91aa7be2f013-1`` -> ``run-5d0c91aa7be2f013-2``.

    Raises:
        BackendError: it is no run of ours.
    """
    match = re.fullmatch(r"(.+)-(\d+)", name)
    if match is None:
        raise BackendError(f"{name} has no attempt in its name: it was not submitted by launcher", code="azureml.name")
    return f"{match[1]}-{int(match[2]) + 1}"


def send_next(client: Client, earlier: JobView) -> Outcome:
    """Submit the attempt after ``earlier``, once: same code, environment, data and folder; a link to its parent.

    Raises:
        BackendError: refused, or the earlier run has no job.json.
        UnknownOutcomeError: it may have been accepted.
    """
    name, fingerprint = next_name(earlier.name), earlier.properties.get(FINGERPRINT, "")
    folder = str((earlier.document.get("outputs") or {}).get(RUN_OUTPUT, {}).get("uri"))
    document = read_job_file(client, folder, earlier.name) | {"name": name, "attempt": int(name.rpartition("-")[2])}
    plan = known.known_plan(earlier.name) or {}
    known.keep(name, client.address, document=document, plan=plan)

    def ready() -> partial[JobView]:
        job_file = place_job_file(client, folder, document)
        return partial(client.put_job, name, _properties(earlier, name, job_file))

    return submit_once(client, name, fingerprint, ready, client.patience)


def read_job_file(client: Client, folder: str, name: str) -> dict[str, Any]:
    """The job.json of the attempt ``name``, from the run's folder."""
    content = open_folder(client, folder).read(f"job-{name.rpartition('-')[2]}.json")
    if content is None:
        raise BackendError(f"{folder} holds no job.json of {name}", code="azureml.job_file")
    return dict(json.loads(content))


def _properties(earlier: JobView, name: str, job_file: str) -> dict[str, Any]:
    """The body of the PUT: what the service gave back of the earlier one, without what is the service's own."""
    properties = {key: value for key, value in earlier.document.items() if key not in _SERVICES_OWN}
    properties["outputs"] = {key: value for key, value in properties["outputs"].items() if key != "default"}
    services = properties.get("services") or {}
    properties["services"] = {key: value for key, value in services.items() if key not in _GIVEN_BY_THE_SERVICE}
    if "job" in (properties.get("inputs") or {}):
        properties["inputs"] = properties["inputs"] | {"job": properties["inputs"]["job"] | {"uri": job_file}}
    properties["tags"] = (properties.get("tags") or {}) | {PARENT_TAG: earlier.name}
    properties["properties"] = {FINGERPRINT: earlier.properties.get(FINGERPRINT, "")}
    return properties
