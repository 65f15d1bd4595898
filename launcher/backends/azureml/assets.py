"""What a job needs in the workspace before it is sent: its code, its environment, its job.json."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml import preflight
from launcher.backends.azureml.images import pinned
from launcher.backends.azureml.mounts import run_folder
from launcher.backends.azureml.options import options_of
from launcher.backends.azureml.storage import open_folder
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.backends.azureml.client import Client, JobView
    from launcher.backends.azureml.prepared import Prepared


def make_ready(client: Client, prepared: Prepared) -> Callable[[], JobView]:
    """Look at the job's chances, upload what it needs, and give back what sends it.

    Raises:
        BackendError: it has no chance, or something cannot be uploaded.
    """
    job = prepared.job
    preflight.require(client, job)
    document = prepared.document_to_send(
        code=f"azureml:{client.register_code(prepared.staged)}",
        environment=_versioned_environment(client, prepared),
        job_file=place_job_file(client, run_folder(job, options_of(job)), job.document),
    )
    return partial(client.send_job, document)


def place_job_file(client: Client, folder: str, document: dict[str, Any]) -> str:
    """Put job.json into the run's folder, one an attempt, beside what the run will leave there; where it lies."""
    name = f"job-{document['attempt']}.json"
    open_folder(client, folder).write(name, json.dumps(document).encode())
    return f"{folder}/{name}"


def _versioned_environment(client: Client, prepared: Prepared) -> str:
    """The environment with a version in it: ours is registered, ``@latest`` is looked up now."""
    if prepared.definition:
        return client.register_environment(prepared.definition)
    if prepared.job.image:
        return pinned(prepared.job.image)
    reference, at, _ = prepared.environment.partition("@latest")
    if not at or not reference.startswith("azureml:"):
        return prepared.environment
    name = reference.removeprefix("azureml:")
    version = client.latest_version("environments", name)
    if version is None:
        raise BackendError(
            f"the workspace has no environment {name}", keys=("environment.asset",), code="azureml.environment"
        )
    return f"{reference}:{version}"
