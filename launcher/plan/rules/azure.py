"""What Azure ML would take and then do wrong, as far as a recipe shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.plan.rules.case import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case
    from launcher.recipe.schema import Recipe

SET_BY_THE_SERVICE = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
NODES_ONE_ACCOUNT_FEEDS = 5
"""An account gives 120 Gb/s, an A100 node takes about 24 (azure-ai-docs how-to-read-write-data-v2.md, 2026-11)."""
_BLOB = re.compile(r"https://(?P<account>[^./]+)\.blob\.[^/]+/(?P<container>[^/]+)/?(?P<path>.*)")
_ASSET = re.compile(r"azureml:[^/:@]+")


def variables(case: Case) -> Iterator[Finding]:
    """Environment variables that would be literal text, or work against the service."""
    cluster = case.recipe.cluster
    if cluster.backend != "azureml":
        return
    for name, value in case.recipe.environment.variables.items():
        key = f"environment.variables.{name}"
        if "${{" in str(value):
            message = f"{name} holds a template, and templates work only in command: the container would see {value!r}"
            yield finding("error", "variable_template", message, key, "entry.arguments")
        if name in SET_BY_THE_SERVICE:
            yield finding("error", "variable_rendezvous", f"Azure ML sets {name} for every rank", key)
        if name == "NCCL_IB_DISABLE" and value == "1" and case.size.has_infiniband and cluster.instance_count > 1:
            message = f"NCCL_IB_DISABLE=1 leaves the InfiniBand of {case.size.name} unused between nodes"
            yield finding("error", "infiniband_disabled", message, key, "cluster.instance_type")


def inputs(case: Case) -> Iterator[Finding]:
    """Data that cannot be mounted, or has no version."""
    if case.recipe.cluster.backend != "azureml":
        return
    for key, uri in _remote_paths(case.recipe):
        blob = _BLOB.fullmatch(uri)
        if blob:
            path, container, account = blob["path"], blob["container"], blob["account"]
            yield finding(
                "error",
                "blob_folder",
                f"{key}: a folder at an https:// blob address cannot be mounted: {uri}",
                key,
                allowed=f"azureml://datastores/NAME/paths/{path}, or "
                f"wasbs://{container}@{account}.blob.core.windows.net/{path}",
            )
        elif _ASSET.fullmatch(uri):
            message = f"{key}: {uri} has no version"
            yield finding("error", "asset_version", message, key, allowed=f"{uri}:VERSION or {uri}@latest")


def environment(case: Case) -> Iterator[Finding]:
    """An environment by a name that may mean anything."""
    asset = case.recipe.environment.asset
    if asset is not None and _ASSET.fullmatch(asset):
        message = f"{asset} does not name a version of an environment"
        yield finding(
            "error",
            "environment_version",
            message,
            "environment.asset",
            allowed=f"{asset}:VERSION or {asset}@latest",
            edits=((f"environment.asset={asset}@latest",),),
        )


def services(case: Case) -> Iterator[Finding]:
    """A door nobody has the key to."""
    cluster = case.recipe.cluster
    if "ssh" in cluster.services and not cluster.ssh_public_key:
        message = "the ssh service needs a public key that may enter"
        yield finding("error", "ssh_key", message, "cluster.ssh_public_key", "cluster.services")


def storage(case: Case) -> Iterator[Finding]:
    """Many nodes that read one storage account."""
    cluster, data = case.recipe.cluster, case.recipe.data
    if cluster.backend != "azureml" or cluster.instance_count <= NODES_ONE_ACCOUNT_FEEDS:
        return
    if any(uri.startswith("azureml:") for _, uri in _remote_paths(case.recipe)):
        message = (
            f"{cluster.instance_count} nodes read one storage account, which feeds about {NODES_ONE_ACCOUNT_FEEDS} at "
            "full speed"
        )
        edits = (("data.mount=download",),) if data.mount == "mount" else ()
        yield finding("note", "storage_egress", message, "data.mount", "cluster.instance_count", edits=edits)


def _remote_paths(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Key and value of everything that is read from elsewhere."""
    data = recipe.data
    yield from (("data.train", uri) for uri in data.train)
    yield from (("data.validation", uri) for uri in data.validation)
    yield from ((f"data.inputs.{name}", uri) for name, uri in data.inputs.items())
    yield "data.tokenizer", data.tokenizer
    if recipe.model.init_from:
        yield "model.init_from", recipe.model.init_from
