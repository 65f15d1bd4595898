"""Azure Resource Manager, as far as a training launcher asks it: the workspace, its assets, datastores and computes."""

from __future__ import annotations

import copy
import re
import time
import uuid
from typing import TYPE_CHECKING, Any

from launcher.emulator import capacity
from launcher.emulator.blobs import container_signature
from launcher.emulator.messages import RefusedError, Request, Response
from launcher.emulator.settings import BLOB_HOST, PROVIDER, STORAGE_ACCOUNT, STORAGE_KEY

if TYPE_CHECKING:
    from launcher.emulator.blobs import Blobs
    from launcher.emulator.jobs import Jobs
    from launcher.emulator.workspace import Workspace

_WORKSPACE = re.compile(
    rf"(?i)/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/{re.escape(PROVIDER)}/workspaces/([^/]+)/?(.*)"
)
_LOCATION = re.compile(rf"(?i)/subscriptions/[^/]+/providers/{re.escape(PROVIDER)}/locations/([^/]+)/(usages|vmSizes)")
_VERSIONED = frozenset({"codes", "environments", "models", "data", "components"})


class Management:
    """Answers requests to management.azure.com."""

    def __init__(self, workspace: Workspace, blobs: Blobs, jobs: Jobs) -> None:
        self._workspace = workspace
        self._blobs = blobs
        self._jobs = jobs
        self._operations: dict[str, float] = {}
        """Long-running operations -> when they succeed."""

    def answer(self, request: Request) -> Response:
        """Whatever lies at the path."""
        match = _WORKSPACE.fullmatch(request.path)
        if match:
            self._require(*match.groups()[:3])
            return self._below_workspace(request, match[4])
        location = _LOCATION.fullmatch(request.path)
        if location:
            what = capacity.usages if location[2].lower() == "usages" else capacity.vm_sizes
            return Response(document={"value": what(self._workspace)})
        if re.fullmatch(r"(?i)/subscriptions/[^/]+", request.path):
            return Response(document=self._subscription())
        listing = re.fullmatch(
            rf"(?i)/subscriptions/[^/]+(/resourceGroups/[^/]+)?/providers/{re.escape(PROVIDER)}/workspaces",
            request.path,
        )
        if listing:
            return Response(document={"value": [self._workspace_document()]})
        raise RefusedError(
            404, "NoRegisteredProviderFound", f"the emulator has nothing at {request.method} {request.path}"
        )

    def _require(self, subscription: str, group: str, name: str) -> None:
        if subscription.lower() != self._workspace.settings.subscription:
            raise RefusedError(404, "SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")
        if group.lower() != self._workspace.settings.resource_group:
            raise RefusedError(404, "ResourceGroupNotFound", f"Resource group '{group}' could not be found.")
        if name.lower() != self._workspace.settings.workspace:
            raise RefusedError(
                404,
                "ResourceNotFound",
                f"The Resource '{PROVIDER}/workspaces/{name}' under resource group '{group}' was not found.",
            )

    def _below_workspace(self, request: Request, path: str) -> Response:
        parts = path.split("/") if path else []
        if not parts:
            return Response(document=self._workspace_document())
        if parts[0].lower() == "jobs":
            return self._jobs.answer(request, parts)
        if path.lower() == "providers/microsoft.authorization/permissions":
            return Response(document={"value": [{"actions": ["*"], "notActions": []}]})
        if parts[0].lower() == "operations":
            return self._operation(parts[1])
        if request.method == "POST":
            return self._action(parts)
        if len(parts) % 2:
            return Response(document={"value": self._listed(path, request)})
        return {"GET": self._get, "PUT": self._put, "PATCH": self._put, "DELETE": self._delete}[request.method](
            request, path
        )

    def _get(self, request: Request, path: str) -> Response:
        found = self._workspace.resources.get(path.lower())
        if found is None:
            raise RefusedError(404, "UserError", f"Not found: {path}")
        return Response(document=found)

    def _put(self, request: Request, path: str) -> Response:
        kind, body = path.split("/")[0].lower(), request.document()
        properties = body.setdefault("properties", {})
        if request.method == "PATCH":
            known = copy.deepcopy(self._workspace.resources.get(path.lower(), {}))
            known.setdefault("properties", {}).update(properties)
            body = known | {name: value for name, value in body.items() if name != "properties"}
            properties = body["properties"]
        if kind in _VERSIONED and path.count("/") == 3:
            self._complete_version(path, kind, properties)
        if kind == "computes":
            return self._put_compute(path, body)
        document, is_new = self._workspace.store(path, body)
        return Response(status=201 if is_new else 200, document=document)

    def _complete_version(self, path: str, kind: str, properties: dict[str, Any]) -> None:
        """Fields the service adds to a version of an asset, and the asset it is a version of."""
        known = self._workspace.resources.get(path.lower())
        if kind == "codes" and known and known["properties"].get("codeUri") != properties.get("codeUri"):
            raise RefusedError(
                409, "UserError", "A code asset with this name and version already exists with a different asset path."
            )
        properties.setdefault("provisioningState", "Succeeded")
        properties.setdefault("isArchived", False)
        properties["tags"], properties["properties"] = properties.get("tags") or {}, properties.get("properties") or {}
        if kind == "models":
            properties["flavors"] = properties.get("flavors") or {}
        if kind == "environments":
            properties.setdefault("environmentType", "UserCreated")
            properties.setdefault("osType", "Linux")
        name, version = path.split("/")[1], path.split("/")[3]
        following = str(int(version) + 1) if version.isdecimal() else "1"
        container = {
            "latestVersion": version,
            "nextVersion": following,
            "isArchived": False,
            "tags": {},
            "properties": {},
        }
        self._workspace.store(f"{path.split('/')[0]}/{name}", {"properties": container})

    def _put_compute(self, path: str, body: dict[str, Any]) -> Response:
        properties = body["properties"]
        details = properties.setdefault("properties", {}) or {}
        details.update({"allocationState": "Steady", "currentNodeCount": 0, "targetNodeCount": 0})
        details["nodeStateCounts"] = dict.fromkeys(
            ("idleNodeCount", "leavingNodeCount", "preemptedNodeCount", "preparingNodeCount", "runningNodeCount",
             "unusableNodeCount"), 0,
        )  # fmt: skip
        properties["properties"], properties["provisioningState"] = details, "Succeeded"
        document, is_new = self._workspace.store(path, body)
        return Response(status=201 if is_new else 200, document=document, headers=self._begin())

    def _delete(self, request: Request, path: str) -> Response:
        with self._workspace.lock:
            self._workspace.resources.pop(path.lower(), None)
        if path.lower().startswith("computes/"):
            return Response(status=202, headers={"Location": self._begin()["Azure-AsyncOperation"], "Retry-After": "1"})
        return Response()

    def _listed(self, path: str, request: Request) -> list[dict[str, Any]]:
        prefix, depth = path.lower() + "/", path.count("/") + 2
        if path.lower().startswith("codes/") and "hash" in request.query:
            prefix = "codes/"  # the service looks for the hash among all code assets, whatever the name in the path
        with self._workspace.lock:
            found = [
                document
                for key, document in self._workspace.resources.items()
                if key.startswith(prefix) and key.count("/") + 1 == depth
            ]
        if "hash" in request.query:
            wanted = request.query["hash"]
            found = [one for one in found if (one["properties"].get("properties") or {}).get("hash_sha256") == wanted]
        if request.query.get("isDefault", "").lower() == "true":
            found = [one for one in found if one["properties"].get("isDefault")]
        if request.query.get("$orderBy", "").startswith("createdtime desc"):
            found = found[::-1]
        return found[: int(request.query.get("$top", len(found)))]

    def _action(self, parts: list[str]) -> Response:
        action = parts[-1].lower()
        if action == "listsecrets":
            return Response(document=self._secret(parts[1]))
        if action == "startpendingupload":
            return Response(document=self._pending_upload())
        raise RefusedError(404, "NotFound", f"no action {'/'.join(parts)}")

    def _secret(self, datastore: str) -> dict[str, str]:
        found = self._workspace.resources.get(f"datastores/{datastore.lower()}")
        if found is None:
            raise RefusedError(404, "UserError", f"No datastore {datastore}")
        if self._workspace.settings.storage_secret == "key":
            return {"secretsType": "AccountKey", "key": STORAGE_KEY}
        container = found["properties"]["containerName"]
        return {"secretsType": "Sas", "sasToken": container_signature(container, permissions="racwdl")}

    def _pending_upload(self) -> dict[str, Any]:
        container = f"{uuid.uuid4().hex}-upload"
        self._blobs.create_container(container)
        address = f"https://{BLOB_HOST}/{container}"
        signed = f"{address}?{container_signature(container, permissions='racwdl')}"
        return {
            "pendingUploadId": uuid.uuid4().hex,
            "pendingUploadType": "TemporaryBlobReference",
            "blobReferenceForConsumption": {
                "blobUri": address,
                "storageAccountArmId": f"/subscriptions/{self._workspace.settings.subscription}/{STORAGE_ACCOUNT}",
                "credential": {"credentialType": "SAS", "sasUri": signed},
            },
        }

    def _begin(self) -> dict[str, str]:
        """Headers of an operation that takes a moment. Retry-After 0 would be read as absent: 30 s."""
        operation = uuid.uuid4().hex
        self._operations[operation] = time.monotonic() + 0.1
        address = f"https://management.azure.com{self._workspace.settings.workspace_path}/operations/{operation}"
        return {"Azure-AsyncOperation": f"{address}?api-version=2023-04-01", "Retry-After": "1"}

    def _operation(self, operation: str) -> Response:
        is_done = time.monotonic() >= self._operations.get(operation, 0)
        document = {"id": operation, "status": "Succeeded" if is_done else "InProgress"}
        return Response(document=document, headers={"Retry-After": "1"})

    def _subscription(self) -> dict[str, str]:
        return {
            "id": f"/subscriptions/{self._workspace.settings.subscription}",
            "subscriptionId": self._workspace.settings.subscription,
            "displayName": "Emulated",
            "tenantId": self._workspace.settings.tenant,
            "state": "Enabled",
        }

    def _workspace_document(self) -> dict[str, Any]:
        tracking = self._workspace.settings.data_plane.replace("https://", "azureml://")
        settings, group = self._workspace.settings, self._workspace.settings.workspace_path.partition("/providers/")[0]
        return {
            "id": settings.workspace_path,
            "name": settings.workspace,
            "type": f"{PROVIDER}/workspaces",
            "location": settings.location,
            "tags": {},
            "kind": "Default",
            "sku": {"name": "Basic", "tier": "Basic"},
            "identity": {"type": "SystemAssigned", "principalId": str(uuid.UUID(int=1)), "tenantId": settings.tenant},
            "properties": {
                "workspaceId": str(uuid.UUID(int=3)),
                "friendlyName": settings.workspace,
                "provisioningState": "Succeeded",
                "discoveryUrl": f"{settings.data_plane}/discovery",
                "mlFlowTrackingUri": f"{tracking}/mlflow/v1.0{settings.workspace_path}",
                "storageAccount": f"{group}/providers/Microsoft.Storage/storageAccounts/{STORAGE_ACCOUNT}",
                "keyVault": f"{group}/providers/Microsoft.KeyVault/vaults/emulated",
                "applicationInsights": f"{group}/providers/Microsoft.Insights/components/emulated",
                "hbiWorkspace": False,
            },
        }
