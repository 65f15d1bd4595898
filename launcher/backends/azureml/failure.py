"""What Azure's exceptions mean: refused for certain (and why, and what to do), or nobody knows."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from launcher.errors import BackendError, Fault, LauncherError
from launcher.recipe.redact import redact_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUOTA = re.compile(r"(?i)quota|CoreQuota|exceed.*(?:limit|cores)|insufficient.*(?:capacity|cores)")
_EXISTS = re.compile(r"(?i)already exists|JobPropertyImmutable")
_LOCK = re.compile(r"(?i)\block(?:s|ed)?\b|ScopeLocked")
"""A management lock answers 409 too (ScopeLocked): no conflict with a job, and no use waiting."""
_ISSUER = re.compile(r"sts\.windows\.net/([0-9a-fA-F-]{36})")
_CONNECTING = frozenset(
    {"NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "SSLCertVerificationError", "gaierror"}
)
"""Exceptions (urllib3, ssl, socket) of a connection that was never made."""
_BEFORE_SENDING = frozenset({"ValidationException", "ValidationError", "MlException", "AssetException", "JobException"})
"""The SDK's own refusals (azure.ai.ml.exceptions, marshmallow) of what it is asked to send."""
_RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})


class DoubtError(Exception):
    """A request may or may not have been accepted."""


class ExistsError(Exception):
    """The service says there is already something of that name."""


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn whatever the SDK raises while ``doing`` into our errors.

    Raises:
        BackendError: refused, or never sent.
        ExistsError: there is something of that name already.
        DoubtError: sent, and no answer that can be understood.
    """
    try:
        yield
    except (LauncherError, DoubtError, ExistsError):
        raise
    except Exception as error:
        raise meaning(error, doing) from error


def meaning(error: Exception, doing: str) -> BackendError | DoubtError | ExistsError:
    """The error of ours that ``error`` stands for."""
    from azure.core import exceptions

    if _never_connected(error):
        return _never_sent(error, doing)
    if isinstance(error, exceptions.ClientAuthenticationError):
        return _sign_in(error, doing)
    if isinstance(error, exceptions.HttpResponseError) and error.status_code:
        return _answered(error, doing)
    if type(error).__name__ in _BEFORE_SENDING:
        return _not_taken(error, doing)
    # Everything else, an AttributeError of the SDK over an empty answer included, may come after the service accepted.
    return DoubtError(f"{doing}: {type(error).__name__}: {_first_line(error)}")


def _answered(error: object, doing: str) -> BackendError | DoubtError | ExistsError:
    """What an HTTP status says. ``error`` is an azure.core HttpResponseError."""
    status: int = error.status_code  # type: ignore[attr-defined]
    message = _message(error)
    if _EXISTS.search(message):
        return ExistsError(message)
    if status in _RETRIABLE or status < 400:
        return DoubtError(f"{doing}: the service answers {status} ({message})")
    request_id = _request_id(error)
    if status == 403:
        return BackendError(_forbidden(message, doing, request_id))
    if _QUOTA.search(message):
        return BackendError(
            f"the subscription's quota does not allow it: {message}",
            keys=("cluster.instance_count", "cluster.instance_type"),
            suggestion="launcher gpus shows what is left; ask for more in the portal, Quotas, Machine learning",
            code="azureml.quota",
        )
    if status == 404:
        return BackendError(f"{doing}: {message}", suggestion="launcher doctor", code="azureml.not_found")
    is_conflict = status == 409 and not _LOCK.search(message)
    code = "azureml.conflict" if is_conflict else "azureml.refused"
    return BackendError(f"{doing}: Azure answers {status}: {message} (request {request_id})", code=code)


def _sign_in(error: Exception, doing: str) -> BackendError:
    """Nobody is signed in, or somebody of another tenant is."""
    message = _first_line(error)
    issuers = _ISSUER.findall(str(error))
    if len(issuers) >= 2:
        what = f"signed in to tenant {issuers[0]}, and the workspace is in tenant {issuers[1]}"
        return BackendError(what, suggestion=f"az login --tenant {issuers[1]}", code="azureml.tenant")
    return BackendError(f"{doing}: not signed in: {message}", suggestion="az login", code="azureml.sign_in")


def _forbidden(message: str, doing: str, request_id: str) -> Fault:
    return Fault(
        what=f"{doing}: not allowed: {message} (request {request_id})",
        allowed="role AzureML Data Scientist on the workspace, or more",
        suggestion="ask the workspace's owner for the role, or 'az account set --subscription ...' if it is another",
        code="azureml.forbidden",
    )


def _never_connected(error: BaseException) -> bool:
    """Whether there was no connection at all. azure-core also says ServiceRequestError of a tunnel that broke later."""
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and one not in seen:
            seen.append(one)
            waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    names = {type(one).__name__ for one in seen}
    # azure-identity keeps the cause of a failed sign-in in its text alone.
    return not names.isdisjoint(_CONNECTING) or ("Authentication failed" in str(error) and "onnection" in str(error))


def _never_sent(error: Exception, doing: str) -> BackendError:
    """The connection itself fails: name, proxy, certificate. Nothing was accepted."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text or "SSL" in text:
        why, suggestion = "the certificate cannot be verified", "REQUESTS_CA_BUNDLE=your-company-ca.pem"
    elif re.search(r"(?i)name or service not known|getaddrinfo|resolve", text):
        why, suggestion = "the host's name does not resolve", "check the network, or HTTPS_PROXY"
    elif "proxy" in text.lower():
        why, suggestion = "the proxy is not there, or does not let it through", "check HTTPS_PROXY and NO_PROXY"
    else:
        why, suggestion = f"no connection: {_first_line(error)}", "check the network, or HTTPS_PROXY"
    return BackendError(f"{doing}: {why}", suggestion=suggestion, code="azureml.network")


def _not_taken(error: Exception, doing: str) -> BackendError:
    """The SDK itself will not take what it is given: a defect of ours, told in its words."""
    return BackendError(f"{doing}: {type(error).__name__}: {_first_line(error)}", code="azureml.sdk")


def _message(error: object) -> str:
    inner = getattr(error, "error", None)
    text = getattr(inner, "message", None) or getattr(error, "message", None) or str(error)
    return _one_line(str(text))


def _request_id(error: object) -> str:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return str(headers.get("x-ms-request-id", "unknown"))


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines()
    return _one_line(lines[0]) if lines else type(error).__name__


def _one_line(text: str) -> str:
    return redact_text(" ".join(text.split()))[:400]
