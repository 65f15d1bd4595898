"""One workspace, spoken to: through azure-ai-ml where it is sound, through plain requests where it is not.

azure.ai.ml takes over a second to import, whichever part is wanted, so it is imported by the first call that needs it:
after plan, staging and confirmation. Every call has our own time-outs.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.credentials import credential
from launcher.backends.azureml.failure import translated
from launcher.backends.azureml.patience import Patience
from launcher.backends.azureml.rest import Rest
from launcher.backends.azureml.yaml_text import to_yaml
from launcher.errors import BackendError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from launcher.backends.azureml.address import Address
    from launcher.backends.azureml.yaml_text import Value

MANAGEMENT = "https://management.azure.com"
API = "2023-04-01"
"""Version of the resource manager's interface for Microsoft.MachineLearningServices."""
JOBS_API = "2025-01-01-preview"
"""The version the SDK PUTs jobs with (azure-ai-ml 1.35.2): an older one would not give back all of a job."""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as the service shows it."""

    name: str
    state: str
    """In the service's words; ``states`` knows them all."""
    tags: dict[str, str]
    properties: dict[str, str]
    studio_url: str | None
    document: dict[str, Any]
    """The resource's ``properties``."""


class Client:
    """The calls a launcher makes to one workspace."""

    def __init__(self, address: Address, patience: Patience | None = None) -> None:
        self.address = address
        self.patience = patience or Patience()
        self.rest = Rest(credential, self.patience)
        _silence("azure", "urllib3", "msal")  # they log at length what they then raise
        self._base = f"{MANAGEMENT}{address.resource_id}"

    def url(self, path: str) -> str:
        """The address of something in the workspace."""
        return f"{self._base}/{path}"

    # Jobs

    def find_job(self, name: str) -> JobView | None:
        """The job called ``name``; None if there is none (or none yet visible)."""
        answer = self.rest.get(f"{self._base}/jobs/{name}", **{"api-version": JOBS_API})
        return _view(answer.document) if answer.is_found else None

    def send_job(self, document: dict[str, Value]) -> JobView:
        """PUT a job once. No retry hides behind it: the caller must know whether it was accepted.

        Raises:
            BackendError: refused, or never sent.
            ExistsError: there is a job of that name, and it may be this one.
            DoubtError: it may have been accepted.
        """
        ml = self._ml
        with tempfile.TemporaryDirectory(prefix="launcher-") as folder, _quiet(), translated("submit the job"):
            path = Path(folder, "job.yaml")
            path.write_text(to_yaml(document), encoding="utf-8")
            from azure.ai.ml import load_job

            created = ml.jobs.create_or_update(load_job(path))
            return JobView(
                name=created.name,
                state=str(getattr(created.status, "value", created.status)),
                tags=dict(created.tags or {}),
                properties=dict(created.properties or {}),
                studio_url=created.studio_url,
                document={},
            )

    def put_job(self, name: str, properties: dict[str, Any]) -> JobView:
        """PUT a job as the service itself gave it back; errors as of ``send_job``."""
        answer = self.rest.put_once(
            f"{self._base}/jobs/{name}", {"properties": properties}, **{"api-version": JOBS_API}
        )
        return _view(answer.document)

    def cancel_job(self, name: str) -> bool:
        """Ask for the job's end; harmless to repeat. False if there is no such job."""
        return self.rest.post(f"{self._base}/jobs/{name}/cancel", **{"api-version": API}).is_found

    def jobs(self) -> Iterator[JobView]:
        """Jobs of the workspace, newest first."""
        return (_view(document) for document in self.listed("jobs", listViewType="ActiveOnly"))

    def listed(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Everything in a collection of the workspace, a page at a time."""
        url, parameters = f"{self._base}/{path}", {"api-version": API, **query}
        while url:
            page = self.rest.get(url, **parameters).document or {}
            yield from page.get("value", ())
            url, parameters = page.get("nextLink") or "", {}

    def run_details(self, name: str) -> dict[str, Any] | None:
        """What run history knows: status, error, warnings, ``logFiles`` with signed addresses; None without a run."""
        answer = self.rest.get(f"{self._history}/runs/{name}/details")
        return dict(answer.document) if answer.is_found else None

    def mlflow(self, verb: str, **query: str) -> dict[str, Any]:
        """One reading call of MLflow's REST interface on the workspace."""
        url = f"{self._data_plane}/mlflow/v2.0{self.address.resource_id}/api/2.0/mlflow/{verb}"
        return dict(self.rest.get(url, **query).document or {})

    # Assets

    def latest_version(self, kind: str, name: str) -> str | None:
        """The newest version of an asset (``environments``, ``data``, ``models``); None without one."""
        query = {"api-version": API, "$orderBy": "createdtime desc", "$top": "1"}
        answer = self.rest.get(f"{self._base}/{kind}/{name}/versions", **query)
        versions = (answer.document or {}).get("value") or [{}]
        return versions[0].get("name") if answer.is_found else None

    # The workspace and its region

    @cached_property
    def workspace(self) -> dict[str, Any]:
        """The workspace's resource.

        Raises:
            BackendError: there is none of this name, or nobody may see it.
        """
        answer = self.rest.get(self._base, **{"api-version": API})
        if not answer.is_found:
            message = ((answer.document or {}).get("error") or {}).get("message", "not found")
            raise BackendError(
                f"workspace {self.address.workspace!r} in resource group {self.address.resource_group!r}: {message}",
                keys=("cluster.workspace", "cluster.resource_group", "cluster.subscription_id"),
                suggestion="launcher doctor",
                code="azureml.workspace",
            )
        return dict(answer.document)

    def regional(self, what: str) -> list[dict[str, Any]]:
        """``usages`` or ``vmSizes`` of the workspace's region, as the service sends them."""
        url = f"{MANAGEMENT}/subscriptions/{self.address.subscription_id}/providers/Microsoft.MachineLearningServices"
        location = self.workspace["location"]
        answer = self.rest.get(f"{url}/locations/{location}/{what}", **{"api-version": API})
        return list((answer.document or {}).get("value", ()))

    def find_compute(self, name: str) -> dict[str, Any] | None:
        """A compute target's ``properties`` and ``identity``; None if there is none of this name."""
        answer = self.rest.get(f"{self._base}/computes/{name}", **{"api-version": API})
        return _compute(answer.document) if answer.is_found else None

    def computes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name, and what ``find_compute`` gives, of every compute target."""
        return ((found["name"], _compute(found)) for found in self.listed("computes"))

    def may(self, action: str) -> bool:
        """Whether the caller's roles on the workspace allow ``action`` (wildcards in roles are honoured)."""
        url = f"{self._base}/providers/Microsoft.Authorization/permissions"
        roles = (self.rest.get(url, **{"api-version": "2022-04-01"}).document or {}).get("value", ())
        return any(
            _matches(action, role.get("actions", ())) and not _matches(action, role.get("notActions", ()))
            for role in roles
        )

    def datastore(self, name: str) -> dict[str, Any]:
        """A datastore's ``properties``.

        Raises:
            BackendError: there is none of this name.
        """
        answer = self.rest.get(f"{self._base}/datastores/{name}", **{"api-version": API})
        if not answer.is_found:
            raise BackendError(f"the workspace has no datastore {name}", code="azureml.datastore")
        return dict(answer.document["properties"])

    def datastore_secret(self, name: str) -> str | None:
        """The datastore's account key or signature; None where the caller's own identity opens it."""
        answer = self.rest.post(f"{self._base}/datastores/{name}/listSecrets", **{"api-version": API})
        secrets = answer.document or {}
        return secrets.get("key") or secrets.get("sasToken")

    @cached_property
    def sdk(self) -> Any:
        """The SDK's client with its usual retries, for calls that may be repeated."""
        return self._make_ml(retries=3)

    @cached_property
    def _ml(self) -> Any:
        """The SDK's client without retries."""
        return self._make_ml(retries=0)

    def _make_ml(self, *, retries: int) -> Any:
        with _quiet():
            try:
                from azure.ai.ml import MLClient
            except ModuleNotFoundError as error:
                raise MissingExtraError(
                    "backend azureml needs the Azure SDK", suggestion="pip install 'launcher[azure]'"
                ) from error
            return MLClient(
                credential(),
                self.address.subscription_id,
                self.address.resource_group,
                self.address.workspace,
                show_progress=False,
                enable_telemetry=False,
                retry_total=retries,
                retry_backoff_factor=self.patience.backoff_seconds,
                connection_timeout=self.patience.connect_seconds,
                read_timeout=self.patience.read_seconds,
            )

    @cached_property
    def _data_plane(self) -> str:
        answer = self.rest.get(self.workspace["properties"]["discoveryUrl"])
        return str(answer.document["api"])

    @property
    def _history(self) -> str:
        return f"{self._data_plane}/history/v1.0{self.address.resource_id}"


def _matches(action: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)


def _compute(document: dict[str, Any]) -> dict[str, Any]:
    return {**document["properties"], "identity": document.get("identity")}


def _view(document: dict[str, Any]) -> JobView:
    properties = document["properties"]
    studio = (properties.get("services") or {}).get("Studio") or {}
    return JobView(
        name=document["name"],
        state=properties.get("status") or "NotStarted",
        tags=dict(properties.get("tags") or {}),
        properties=dict(properties.get("properties") or {}),
        studio_url=studio.get("endpoint"),
        document=properties,
    )


def _quiet() -> warnings.catch_warnings:
    """The SDK tells of its own experimental classes and deprecations; nobody who submits a job can mend them."""
    _silence("azure.ai.ml")  # it sets its own level when it is imported
    return warnings.catch_warnings(action="ignore")


def _silence(*loggers: str) -> None:
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL)
