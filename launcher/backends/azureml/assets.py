"""What a job needs in the workspace before it is sent: its code, its environment, its job.json."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml import preflight
from launcher.backends.azureml.client import API
from launcher.backends.azureml.images import pinned
from launcher.backends.azureml.mounts import RUNS_FOLDER, run_folder
from launcher.backends.azureml.options import DEFAULT_DATASTORE, options_of
from launcher.backends.azureml.storage import open_folder
from launcher.backends.azureml.uploads import upload
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.backends.azureml.client import Client, JobView
    from launcher.backends.azureml.environments import Definition
    from launcher.backends.azureml.prepared import Prepared
    from launcher.job.stage import Staged

CODE_FOLDER = "src"
"""Where the SDK puts code in its container; the studio looks for it there."""
_VERSION = {"api-version": API}


def make_ready(client: Client, prepared: Prepared) -> Callable[[], JobView]:
    """Look at the job's chances, upload what it needs, and give back what sends it.

    Raises:
        BackendError: it has no chance, or something cannot be uploaded.
    """
    job = prepared.job
    preflight.require(client, job)
    document = prepared.document_to_send(
        code=f"azureml:{register_code(client, prepared.staged)}",
        environment=_versioned_environment(client, prepared),
        job_file=place_job_file(client, run_folder(job, options_of(job)), job.document),
    )
    return partial(client.send_job, document)


def place_job_file(client: Client, folder: str, document: dict[str, Any]) -> str:
    """Put job.json into the run's folder, one an attempt, beside what the run will leave there; where it lies."""
    name = f"job-{document['attempt']}.json"
    open_folder(client, folder).write(name, json.dumps(document).encode())
    return f"{folder}/{name}"


def register_code(client: Client, staged: Staged) -> str:
    """The id of a code asset with this content: uploaded now, or by anybody before. Half an upload is never named.

    Raises:
        BackendError: storage or the service refuses.
    """
    path = f"codes/launcher-{staged.digest[:40]}/versions/1"
    url, resource_id = client.url(path), f"{client.address.resource_id}/{path}"
    if client.rest.get(url, **_VERSION).is_found:
        return resource_id
    body = {"pendingUploadType": "TemporaryBlobReference"}
    place = client.rest.post(f"{url}/startPendingUpload", body, **_VERSION).document["blobReferenceForConsumption"]
    upload(staged.files, place["credential"]["sasUri"], CODE_FOLDER)
    properties = {"hash_sha256": staged.digest, "hash_version": "launcher-1"}
    code = {"codeUri": f"{place['blobUri']}/{CODE_FOLDER}", "isAnonymous": True, "properties": properties}
    try:
        client.rest.put(url, {"properties": code}, **_VERSION)
    except BackendError:
        # Somebody registered the same content a moment before: theirs is as good as ours.
        if not client.rest.get(url, **_VERSION).is_found:
            raise
    return resource_id


def register_environment(client: Client, definition: Definition) -> str:
    """The reference of an environment with this content, built once and reused while it is unchanged."""
    url = client.url(f"environments/{definition.asset_name}/versions/{definition.version}")
    if not client.rest.get(url, **_VERSION).is_found:
        place = f"{RUNS_FOLDER}/environments/{definition.name}/{definition.version}"
        context = open_folder(client, f"azureml://datastores/{DEFAULT_DATASTORE}/paths/{place}")
        for path in sorted(path for path in definition.folder.rglob("*") if path.is_file()):
            context.write(path.relative_to(definition.folder).as_posix(), path.read_bytes())
        build = {"contextUri": f"{context.address}/", "dockerfilePath": "Dockerfile"}
        body = {"properties": {"build": build, "osType": "Linux", "tags": {"launcher": definition.name}}}
        client.rest.put(url, body, **_VERSION)
    return definition.reference


def register_data(client: Client, name: str, version: str, uri: str) -> None:
    """Make ``uri``, a folder of a datastore, a version of a data asset; harmless to repeat."""
    body = {"properties": {"dataType": "uri_folder", "dataUri": uri}}
    client.rest.put(client.url(f"data/{name}/versions/{version}"), body, **_VERSION)


def _versioned_environment(client: Client, prepared: Prepared) -> str:
    """The environment with a version in it: ours is registered, ``@latest`` is looked up now."""
    if prepared.definition:
        return register_environment(client, prepared.definition)
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
