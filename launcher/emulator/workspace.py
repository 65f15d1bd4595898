"""The state of one emulated workspace: its resources, its jobs, and the ledger of what was accepted."""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from launcher.emulator.settings import BLOB_HOST, PROVIDER, STORAGE_ACCOUNT, Settings

State = Literal[
    "NotStarted", "Starting", "Queued", "Preparing", "Running", "Finalizing", "CancelRequested", "Completed", "Failed",
    "Canceled",
]  # fmt: skip
ENDED: frozenset[str] = frozenset({"Completed", "Failed", "Canceled"})
DEFAULT_DATASTORE = "workspaceblobstore"
ARTIFACT_DATASTORE = "workspaceartifactstore"
CONTAINERS = {DEFAULT_DATASTORE: "azureml-blobstore", ARTIFACT_DATASTORE: "azureml"}
"""Datastore -> its container."""


@dataclass(kw_only=True)
class Job:
    """One accepted job."""

    name: str
    properties: dict[str, Any]
    """The REST body's ``properties``, as the service gives them back."""
    state: State = "NotStarted"
    times: dict[str, float] = field(default_factory=dict)
    """State -> Unix time it was entered."""
    error: dict[str, str] | None = None
    logs: dict[str, str] = field(default_factory=dict)
    """Log's path in the run -> blob of the artifact container."""
    waits_for: str | None = None
    """Why it is Queued."""
    wants_end: Literal["cancel", "preempt"] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ENDED

    @property
    def nodes(self) -> int:
        """VMs it asks for."""
        return int((self.properties.get("resources") or {}).get("instanceCount") or 1)

    @property
    def processes_per_node(self) -> int:
        """Processes it asks for on each VM."""
        return int((self.properties.get("distribution") or {}).get("processCountPerInstance") or 1)


class Workspace:
    """Everything the service remembers. Every access is under ``lock``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.resources: dict[str, dict[str, Any]] = {}
        """Path below the workspace, in lower case -> document."""
        self.jobs: dict[str, Job] = {}
        self.accepted: list[dict[str, Any]] = []
        """The ledger: one entry a job, in the order they were accepted."""
        self.puts: Counter[str] = Counter()
        """PUTs of each job's name, accepted or repeated."""
        for name, container in CONTAINERS.items():
            self.store(f"datastores/{name}", {"properties": _datastore(name, container, settings)})

    def store(self, path: str, document: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """Keep ``document`` under ``path``; it with the service's own fields, and whether it is new."""
        with self.lock:
            known = self.resources.get(path.lower())
            kept = self.described(path, document)
            self.resources[path.lower()] = kept
            return copy.deepcopy(kept), known is None

    def described(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """``document`` with id, name, type and times."""
        parts, now = path.split("/"), datetime.now(UTC).isoformat().replace("+00:00", "Z")
        known = self.resources.get(path.lower(), {})
        system = {
            "createdAt": known.get("systemData", {}).get("createdAt", now),
            "createdBy": "emulator",
            "createdByType": "User",
            "lastModifiedAt": now,
        }
        return {
            **document,
            "id": f"{self.settings.workspace_path}/{path}",
            "name": parts[-1],
            "type": f"{PROVIDER}/workspaces/{'/'.join(parts[0::2])}",
            "systemData": system,
        }

    def enter(self, job: Job, state: State, *, error: dict[str, str] | None = None) -> None:
        """Move ``job`` to ``state`` and wake whoever waits for it."""
        with self.changed:
            job.state = state
            job.times[state] = time.time()
            job.error = error or job.error
            job.waits_for = job.waits_for if state == "Queued" else None
            self.changed.notify_all()


def _datastore(name: str, container: str, settings: Settings) -> dict[str, Any]:
    return {
        "datastoreType": "AzureBlob",
        "isDefault": name == DEFAULT_DATASTORE,
        "accountName": STORAGE_ACCOUNT,
        "containerName": container,
        "endpoint": BLOB_HOST.partition(".blob.")[2],
        "protocol": "https",
        "serviceDataAccessAuthIdentity": "None",
        "credentials": {"credentialsType": "AccountKey" if settings.storage_secret == "key" else "Sas"},
        "subscriptionId": settings.subscription,
        "resourceGroup": settings.resource_group,
        "tags": {},
        "properties": {},
    }
