"""Whether this machine can submit to Azure ML: each thing looked at, and the command that mends it."""

from __future__ import annotations

import base64
import json
import platform
import time
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from launcher import __version__
from launcher.backends.azureml.address import resolve_address
from launcher.backends.azureml.credentials import credential, credential_kind
from launcher.backends.azureml.images import pinned
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from launcher.backends.azureml.address import Address
    from launcher.backends.azureml.client import Client

Level = Literal["ok", "warn", "FAIL", "skip"]
_PACKAGES = {"azure-ai-ml": (1, 35), "azure-core": (1, 38), "azure-identity": (1, 25)}
"""Oldest versions: azure-core below 1.38 has CVE-2026-21226; pip takes azure-ai-ml back to 1.26 for marshmallow 4."""
_BASE_IMAGE = "mcr.microsoft.com/azureml/curated/acpt-pytorch-2.8-cuda12.6:17"
_MOST_SKEW_SECONDS = 300
_ACTION = "Microsoft.MachineLearningServices/workspaces/jobs/write"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing looked at."""

    name: str
    level: Level
    what: str
    suggestion: str | None = None


def examine() -> Iterator[Check]:
    """Every check, in the order things can be mended; after a failure what depends on it is skipped."""
    yield from _versions()
    try:
        address = resolve_address()
    except LauncherError as error:
        yield from (
            Check(name="workspace", level="FAIL", what=fault.what, suggestion=fault.allowed) for fault in error.faults
        )
        yield _skipped("sign-in", "clock", "role", "registry", "datastore", "quota", after="the workspace's name")
        return
    yield from _signed_in(address)


def _versions() -> Iterator[Check]:
    yield Check(name="versions", level="ok", what=f"Python {platform.python_version()}, launcher {__version__}")
    for package, oldest in _PACKAGES.items():
        yield _version(package, oldest)


def _version(package: str, oldest: tuple[int, int]) -> Check:
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Check(
            name="versions",
            level="FAIL",
            what=f"{package} is not installed",
            suggestion="pip install 'launcher[azure]'",
        )
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < oldest:
        wanted = f"{oldest[0]}.{oldest[1]}"
        upgrade = f"pip install -U pip '{package}>={wanted}'"
        return Check(
            name="versions", level="FAIL", what=f"{package} {version} is older than {wanted}", suggestion=upgrade
        )
    return Check(name="versions", level="ok", what=f"{package} {version}")


def _signed_in(address: Address) -> Iterator[Check]:
    from launcher.backends.azureml.client import Client
    from launcher.backends.azureml.failure import translated
    from launcher.backends.azureml.rest import SCOPE

    try:
        with translated(f"sign in with {credential_kind()}"):
            token = credential().get_token(SCOPE).token
    except Exception as error:  # whatever the chosen credential raises is the finding
        yield Check(name="sign-in", level="FAIL", what=_first(error), suggestion="az login")
        yield _skipped("clock", "workspace", "role", "registry", "datastore", "quota", after="a sign-in")
        return
    claims = _claims(token)
    who = claims.get("upn") or claims.get("appid") or claims.get("oid") or "somebody"
    yield Check(name="sign-in", level="ok", what=f"{who} ({credential_kind()}), tenant {claims.get('tid', 'unknown')}")
    yield from _workspace(Client(address))


def _workspace(client: Client) -> Iterator[Check]:
    address = client.address
    try:
        workspace = client.workspace
    except LauncherError as error:
        fault = error.faults[0]
        yield _clock(client)
        yield Check(
            name="workspace", level="FAIL", what=fault.what, suggestion=fault.suggestion or _how_to_see(address)
        )
        yield _skipped("role", "registry", "datastore", "quota", after="the workspace")
        return
    yield _clock(client)
    yield Check(name="workspace", level="ok", what=f"{address.workspace} in {workspace['location']}")
    for name, look in (("role", _role), ("registry", _registry), ("datastore", _datastore), ("quota", _quota)):
        yield _looked(name, look, client)


def _looked(name: str, look: Callable[[Client], Check], client: Client) -> Check:
    try:
        return look(client)
    except LauncherError as error:
        fault = error.faults[0]
        return Check(name=name, level="FAIL", what=fault.what, suggestion=fault.suggestion)


def _clock(client: Client) -> Check:
    skew = client.rest.clock_skew_seconds
    if abs(skew) > _MOST_SKEW_SECONDS:
        what = f"this machine's clock is {abs(skew) / 60:.0f} min {'ahead' if skew > 0 else 'behind'}"
        return Check(name="clock", level="FAIL", what=what, suggestion="sudo timedatectl set-ntp true")
    return Check(name="clock", level="ok", what=f"within {max(abs(skew), 1):.0f} s of Azure's")


def _role(client: Client) -> Check:
    if client.may(_ACTION):
        return Check(name="role", level="ok", what="may submit jobs")
    what = "may not submit jobs to the workspace"
    return Check(name="role", level="FAIL", what=what, suggestion="ask its owner for the role AzureML Data Scientist")


def _registry(client: Client) -> Check:
    """Where images come from. Nodes pull them, not this machine: a registry it cannot reach is a warning."""
    registry = client.workspace["properties"].get("containerRegistry")
    own = str(registry).rpartition("/")[2] if registry else "made with the first image"
    answers = pinned(_BASE_IMAGE) != _BASE_IMAGE
    public = "mcr.microsoft.com answers" if answers else "mcr.microsoft.com does not answer here"
    return Check(name="registry", level="ok" if answers else "warn", what=f"the workspace's own: {own}; {public}")


def _datastore(client: Client) -> Check:
    """Write, read and delete a small blob where runs keep their output."""
    from launcher.backends.azureml.options import DEFAULT_DATASTORE
    from launcher.backends.azureml.storage import open_folder

    folder, stamp = (
        open_folder(client, f"azureml://datastores/{DEFAULT_DATASTORE}/paths/launcher/doctor"),
        time.time_ns(),
    )
    folder.write(f"{stamp}", b"written by launcher doctor")
    readable = folder.read(f"{stamp}") is not None
    folder.remove(f"{stamp}")
    what = f"{DEFAULT_DATASTORE} is written and read"
    return Check(name="datastore", level="ok" if readable else "FAIL", what=what)


def _quota(client: Client) -> Check:
    from launcher.backends.azureml.gpus import offers

    usable = [offer for offer in offers(client) if offer.nodes_left]
    if not usable:
        what = "no GPU family has quota left in this region (GPU quota begins at 0)"
        return Check(
            name="quota", level="warn", what=what, suggestion="launcher gpus; portal, Quotas, Machine learning"
        )
    return Check(name="quota", level="ok", what=f"{len(usable)} GPU sizes have quota left: launcher gpus")


def _claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        return dict(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))
    except ValueError:
        return {}


def _how_to_see(address: Address) -> str:
    return f"az ml workspace list --subscription {address.subscription_id}"


def _first(error: Exception) -> str:
    return error.faults[0].what if isinstance(error, LauncherError) else str(error).splitlines()[0]


def _skipped(*names: str, after: str) -> Check:
    return Check(name=", ".join(names), level="skip", what=f"need {after}")
