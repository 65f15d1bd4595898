"""Sign-in: what azure-identity asks of login.microsoftonline.com, and who may do what with the token it gets."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from launcher.emulator import tokens
from launcher.emulator.messages import RefusedError, Request, Response
from launcher.emulator.settings import MANAGEMENT_HOST, SIGN_IN_HOST

if TYPE_CHECKING:
    from launcher.emulator.workspace import Workspace

_BASE = f"https://{SIGN_IN_HOST}"
_AUDIENCES = {f"https://{MANAGEMENT_HOST}", "https://management.core.windows.net", "https://ml.azure.com"}


class SignIn:
    """One tenant with one application."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.lifetime_seconds: float = tokens.LIFETIME_SECONDS

    def answer(self, request: Request) -> Response:
        """Instance discovery, OpenID configuration, or a token."""
        if request.path == "/common/discovery/instance":
            return Response(document=_instances())
        match = re.fullmatch(r"/([^/]+)/(v2\.0/\.well-known/openid-configuration|oauth2/v2\.0/token)", request.path)
        if match is None:
            raise RefusedError(404, "NotFound", f"no sign-in at {request.path}")
        tenant, what = match.groups()
        if tenant.lower() != self._workspace.settings.tenant:
            return _denied("invalid_request", f"AADSTS90002: Tenant '{tenant}' not found.")
        return Response(document=_configuration(tenant)) if what.startswith("v2.0") else self._token(request, tenant)

    def check(self, request: Request) -> None:
        """Refuse a request of the management or data plane that carries no good token."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        claims = tokens.claims_of(token) if token else None
        if claims is None or claims["aud"].rstrip("/") not in _AUDIENCES:
            raise _unauthorized("The access token is missing or invalid.")
        if claims["exp"] <= time.time():
            raise _unauthorized("The access token has expired.")
        if self._workspace.settings.role == "none":
            raise RefusedError(
                403,
                "AuthorizationFailed",
                f"The client '{claims['oid']}' does not have authorization to perform action "
                f"'{request.method.lower()}' over scope '{request.path}' or the scope is invalid.",
            )

    def _token(self, request: Request, tenant: str) -> Response:
        form = dict(parse_qsl(request.body.decode()))
        has_secret = form.get("client_secret") == self._workspace.settings.client_secret
        if form.get("client_id") != self._workspace.settings.client_id:
            return _denied("unauthorized_client", f"AADSTS700016: Application '{form.get('client_id')}' was not found.")
        if not has_secret and "client_assertion" not in form:
            return _denied("invalid_client", "AADSTS7000215: Invalid client secret provided.")
        audience = form.get("scope", "").split()[0].removesuffix("/.default")
        lifetime = self.lifetime_seconds
        token = tokens.issue(
            audience=audience, tenant=tenant, subject=self._workspace.settings.client_id, lifetime_seconds=lifetime
        )
        seconds = int(lifetime)
        document = {"token_type": "Bearer", "expires_in": seconds, "ext_expires_in": seconds, "access_token": token}
        return Response(document=document)


def _unauthorized(message: str) -> RefusedError:
    challenge = f'Bearer authorization_uri="{_BASE}/common", error="invalid_token", error_description="{message}"'
    return RefusedError(401, "AuthenticationFailed", message, headers={"WWW-Authenticate": challenge})


def _denied(error: str, description: str) -> Response:
    return Response(status=400, document={"error": error, "error_description": description})


def _instances() -> dict[str, Any]:
    aliases = [SIGN_IN_HOST, "login.windows.net", "login.microsoft.com", "sts.windows.net"]
    return {
        "tenant_discovery_endpoint": f"{_BASE}/common/.well-known/openid-configuration",
        "api-version": "1.1",
        "metadata": [
            {"preferred_network": SIGN_IN_HOST, "preferred_cache": "login.windows.net", "aliases": aliases},
        ],
    }


def _configuration(tenant: str) -> dict[str, str]:
    return {
        "token_endpoint": f"{_BASE}/{tenant}/oauth2/v2.0/token",
        "authorization_endpoint": f"{_BASE}/{tenant}/oauth2/v2.0/authorize",
        "device_authorization_endpoint": f"{_BASE}/{tenant}/oauth2/v2.0/devicecode",
        "issuer": f"{_BASE}/{tenant}/v2.0",
    }
