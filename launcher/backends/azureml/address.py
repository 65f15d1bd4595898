"""Which workspace is meant: the recipe's keys, Azure ML's own variables, or a ``config.json`` from the studio."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import BackendError, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.backends.azureml.options import Options

PROVIDER = "Microsoft.MachineLearningServices"
VARIABLES = {
    "subscription_id": "AZUREML_ARM_SUBSCRIPTION",
    "resource_group": "AZUREML_ARM_RESOURCEGROUP",
    "workspace": "AZUREML_ARM_WORKSPACE_NAME",
}
"""Set inside every Azure ML job, so that a job may submit jobs."""
_CONFIG_NAMES = {
    "subscription_id": "subscription_id",
    "resource_group": "resource_group",
    "workspace": "workspace_name",
}
_CONFIG_FILES = ("config.json", ".azureml/config.json")


@dataclass(frozen=True, kw_only=True)
class Address:
    """One workspace."""

    subscription_id: str
    resource_group: str
    workspace: str

    @property
    def resource_id(self) -> str:
        """Of the workspace, as Azure Resource Manager writes it."""
        return (
            f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
            f"/providers/{PROVIDER}/workspaces/{self.workspace}"
        )


def resolve_address(options: Options | None = None, *, known: Mapping[str, str] | None = None) -> Address:
    """The workspace of a recipe, or of a run (``known``: what was kept of it), or the one this machine uses.

    Raises:
        BackendError: a part of it is not said anywhere; all missing parts at once.
    """
    found = _from_config() | _from_environment() | (_from_options(options) if options else {}) | dict(known or {})
    missing = [field.name for field in fields(Address) if not found.get(field.name)]
    if missing:
        raise BackendError([_missing(name) for name in missing])
    return Address(**{field.name: found[field.name] for field in fields(Address)})


def _from_options(options: Options) -> dict[str, str]:
    values = {field.name: getattr(options, field.name) for field in fields(Address)}
    return {name: value for name, value in values.items() if value}


def _from_environment() -> dict[str, str]:
    return {name: os.environ[variable] for name, variable in VARIABLES.items() if os.environ.get(variable)}


def _from_config() -> dict[str, str]:
    """The nearest ``config.json`` here or above that names a workspace; another program's is passed over."""
    here = Path.cwd()
    for path in (folder / name for folder in (here, *here.parents) for name in _CONFIG_FILES):
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and "workspace_name" in document:
            return {name: document[theirs] for name, theirs in _CONFIG_NAMES.items() if document.get(theirs)}
    return {}


def _missing(name: str) -> Fault:
    return Fault(
        what=f"no {name.replace('_', ' ').removesuffix(' id')} is said: which workspace shall run the job?",
        keys=(f"cluster.{name}",),
        allowed=f"cluster.{name}=..., ${VARIABLES[name]}, or config.json of the workspace in this folder or above",
        suggestion="the studio offers config.json for download: ml.azure.com, workspace name, Download config file",
        code="azureml.workspace",
    )
