"""Compute targets: AmlCompute clusters made, shown, scaled and deleted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.failure import DoubtError, translated
from launcher.catalog import vm_sizes
from launcher.errors import BackendError, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.azureml.client import Client

_NAME_LENGTH = range(3, 25)  # azure-ai-docs how-to-create-attach-compute-cluster.md: 3 to 24 characters
IDLE_SECONDS = 1800
"""Nodes that do nothing go back after half an hour: the SDK's 120 s would take them between two attempts."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One AmlCompute target."""

    name: str
    size: str
    tier: str
    """``dedicated`` or ``spot``."""
    min_nodes: int
    max_nodes: int
    idle_seconds: int | None
    state: str
    nodes: int
    """There now."""
    busy_nodes: int
    identity: str | None
    ssh: bool


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A cluster that shall be."""

    name: str
    size: str
    tier: str = "dedicated"
    min_nodes: int = 0
    max_nodes: int = 1
    idle_seconds: int = IDLE_SECONDS
    identity: bool = True
    """Whether it has an identity of its own, to pull images and read data with."""
    ssh_public_key: str | None = None
    """Who may enter; whether anybody may is fixed when the cluster is made."""


def create(client: Client, wish: Wish) -> Cluster:
    """Make the cluster, or bring the one of this name to the wish.

    Raises:
        BackendError: the wish is impossible, or the service refuses.
    """
    faults = tuple(_faults(wish))
    if faults:
        raise BackendError(faults)
    from azure.ai.ml.entities import AmlCompute, AmlComputeSshSettings, IdentityConfiguration

    key = wish.ssh_public_key
    ssh = AmlComputeSshSettings(admin_username="azureuser", ssh_key_value=key) if key else None
    entity = AmlCompute(
        name=wish.name,
        size=wish.size,
        tier="low_priority" if wish.tier == "spot" else "dedicated",
        min_instances=wish.min_nodes,
        max_instances=wish.max_nodes,
        idle_time_before_scale_down=wish.idle_seconds,
        identity=IdentityConfiguration(type="system_assigned") if wish.identity else None,
        ssh_public_access_enabled=ssh is not None,
        ssh_settings=ssh,
    )
    _do(client, f"create compute target {wish.name}", "begin_create_or_update", entity)
    return show(client, wish.name)


def show(client: Client, name: str) -> Cluster:
    """The cluster called ``name``.

    Raises:
        BackendError: there is none.
    """
    found = client.find_compute(name)
    if found is None:
        raise BackendError(
            f"the workspace has no compute target {name!r}",
            allowed=", ".join(cluster.name for cluster in clusters(client)) or "none is there",
            code="azureml.compute",
        )
    return _cluster(name, found)


def clusters(client: Client) -> Iterator[Cluster]:
    """Every AmlCompute target of the workspace."""
    for name, properties in client.computes():
        if properties.get("computeType", "AmlCompute") == "AmlCompute":
            yield _cluster(name, properties)


def scale(client: Client, name: str, *, min_nodes: int | None, max_nodes: int | None) -> Cluster:
    """Change how far the cluster shrinks and grows.

    Raises:
        BackendError: there is no such cluster, or the service refuses.
    """
    now = show(client, name)
    lowest, highest = (
        now.min_nodes if min_nodes is None else min_nodes,
        now.max_nodes if max_nodes is None else max_nodes,
    )
    if lowest > highest:
        raise BackendError(f"--min {lowest} is more than --max {highest}", code="azureml.compute_nodes")
    entity = client.sdk.compute.get(name)
    entity.min_instances, entity.max_instances = lowest, highest
    _do(client, f"scale compute target {name}", "begin_update", entity)
    return show(client, name)


def delete(client: Client, name: str) -> None:
    """Delete the cluster; its nodes go back at once.

    Raises:
        BackendError: there is no such cluster, or the service refuses.
    """
    show(client, name)
    _do(client, f"delete compute target {name}", "begin_delete", name)


def _do(client: Client, doing: str, verb: str, *arguments: Any) -> None:
    """A long-running call of the SDK, waited for."""
    try:
        with translated(doing):
            getattr(client.sdk.compute, verb)(*arguments).wait()
    except DoubtError as doubt:
        raise BackendError(str(doubt), suggestion="launcher cluster show", code="azureml.unavailable") from doubt


def _faults(wish: Wish) -> Iterator[Fault]:
    if len(wish.name) not in _NAME_LENGTH or not wish.name.replace("-", "").isalnum():
        yield Fault(
            what=f"{wish.name!r} cannot name a compute target",
            allowed="3 to 24 letters, digits and dashes",
            code="azureml.compute_name",
        )
    if wish.min_nodes > wish.max_nodes:
        yield Fault(what=f"--min {wish.min_nodes} is more than --max {wish.max_nodes}", code="azureml.compute_nodes")
    size = vm_sizes.find(wish.size)
    if size.status == "retired" or size.is_local:
        yield Fault(what=f"{size.name} is {'retired' if not size.is_local else 'this machine'}", code="azureml.retired")


def _cluster(name: str, properties: dict[str, Any]) -> Cluster:
    details = properties.get("properties") or {}
    scaling, counts = details.get("scaleSettings") or {}, details.get("nodeStateCounts") or {}
    return Cluster(
        name=name,
        size=str(details.get("vmSize")),
        tier="spot" if str(details.get("vmPriority", "")).lower() == "lowpriority" else "dedicated",
        min_nodes=int(scaling.get("minNodeCount") or 0),
        max_nodes=int(scaling.get("maxNodeCount") or 0),
        idle_seconds=_seconds(scaling.get("nodeIdleTimeBeforeScaleDown")),
        state=str(details.get("allocationState") or properties.get("provisioningState")),
        nodes=int(details.get("currentNodeCount") or 0),
        busy_nodes=int(counts.get("runningNodeCount") or 0),
        identity=(properties.get("identity") or {}).get("type"),
        ssh=str(details.get("remoteLoginPortPublicAccess", "")).lower() == "enabled",
    )


def _seconds(duration: str | None) -> int | None:
    """Seconds of ``PT1800S`` or ``PT1H30M`` (ISO 8601, as the service writes idle times)."""
    match = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?", duration or "")
    if match is None:
        return None
    return sum(int(amount or 0) * unit for amount, unit in zip(match.groups(), (3600, 60, 1), strict=True))
