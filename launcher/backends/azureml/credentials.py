"""Who signs in: one explicit credential, chosen by what the environment says. No secret is ever written anywhere.

Explicit, because DefaultAzureCredential tries nine in turn, waits a second for an instance metadata service that is
not there, and reports nine failures (azure-identity 1.27, measured 2026-11-30).
"""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from launcher.errors import BackendError

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

MANAGED_IDENTITY_VARIABLE = "LAUNCHER_MANAGED_IDENTITY"
_SECONDS = 20


def credential_kind() -> str:
    """What ``credential`` will use, in words."""
    environment = os.environ
    if environment.get("AZURE_FEDERATED_TOKEN_FILE"):
        return "workload identity (AZURE_FEDERATED_TOKEN_FILE)"
    if environment.get("ACTIONS_ID_TOKEN_REQUEST_URL") and environment.get("AZURE_CLIENT_ID"):
        return "GitHub Actions OIDC"
    if environment.get("AZURE_CLIENT_SECRET") or environment.get("AZURE_CLIENT_CERTIFICATE_PATH"):
        return "service principal (AZURE_CLIENT_ID)"
    if environment.get(MANAGED_IDENTITY_VARIABLE):
        return "managed identity"
    return "Azure CLI"


def credential() -> TokenCredential:
    """A credential for the environment this runs in.

    Raises:
        BackendError: a variable it needs is missing.
    """
    from azure import identity

    kind, client_id = credential_kind(), os.environ.get("AZURE_CLIENT_ID")
    try:
        if kind.startswith("workload"):
            return identity.WorkloadIdentityCredential(retry_total=1)
        if kind.startswith("GitHub"):
            return identity.ClientAssertionCredential(
                _variable("AZURE_TENANT_ID"), client_id or "", _github_assertion, retry_total=1
            )
        if kind.startswith("service"):
            return identity.EnvironmentCredential(retry_total=1)
        if kind.startswith("managed"):
            return identity.ManagedIdentityCredential(client_id=client_id)
        return identity.AzureCliCredential(process_timeout=_SECONDS)
    except ValueError as error:
        raise BackendError(f"cannot sign in with {kind}: {error}", code="azureml.sign_in") from error


def _variable(name: str) -> str:
    if not os.environ.get(name):
        raise BackendError(
            f"{name} is not set, and {credential_kind()} needs it",
            suggestion="permissions: id-token: write, and azure/login or env: in the workflow",
            code="azureml.sign_in",
        )
    return os.environ[name]


def _github_assertion() -> str:
    """The workflow's own token, which Azure exchanges for one of its own."""
    url = _variable("ACTIONS_ID_TOKEN_REQUEST_URL")
    query = urllib.parse.urlencode({"audience": "api://AzureADTokenExchange"})
    request = urllib.request.Request(
        f"{url}&{query}", headers={"Authorization": f"bearer {_variable('ACTIONS_ID_TOKEN_REQUEST_TOKEN')}"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        document: dict[str, Any] = json.load(answer)
    return str(document["value"])
