"""What can be known of a job's chances before anything is uploaded: workspace, compute target, quota."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.backends.azureml.options import options_of
from launcher.backends.azureml.sizes import size_of
from launcher.catalog.vm_size import normalise_family
from launcher.errors import BackendError, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from launcher.backends.azureml.client import Client
    from launcher.catalog.vm_size import VmSize
    from launcher.job.spec import JobSpec

_SPOT_CORES = "totallowprioritycores"
"""Low-priority cores are one pool for all families (azure-ai-docs how-to-manage-quotas.md)."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Cores (vCPUs) of one family, in one region."""

    family: str
    used: int
    limit: int

    @property
    def left(self) -> int:
        """Cores that can still be asked for."""
        return max(0, self.limit - self.used)


def require(client: Client, job: JobSpec) -> None:
    """Raise BackendError with everything that already forbids ``job``."""
    _ = client.workspace
    faults = tuple(_compute_faults(client, job) if job.compute else _quota_faults(client, job))
    if faults:
        raise BackendError(faults)


def quotas(client: Client) -> dict[str, Quota]:
    """Quota by family, in one spelling. The SDK's own attributes are None (azure-ai-ml 1.35.2): read as it is sent."""
    rows = (
        Quota(family=_name(usage), used=int(usage.get("currentValue") or 0), limit=int(usage.get("limit") or 0))
        for usage in client.regional("usages")
    )
    return {normalise_family(row.family): row for row in rows}


def quota_of(size: VmSize, tier: str, known: dict[str, Quota]) -> Quota | None:
    """The quota a job on ``size`` draws from; None where the service does not say."""
    family = _SPOT_CORES if tier == "spot" else normalise_family(size.quota_family or "")
    return known.get(family)


def _compute_faults(client: Client, job: JobSpec) -> Iterator[Fault]:
    """A named target must be there, of the tier that was asked, of the size, and big enough."""
    name = (job.compute or "").removeprefix("azureml:")
    target = client.find_compute(name)
    if target is None:
        yield Fault(
            what=f"the workspace has no compute target {name!r}",
            keys=("cluster.compute",),
            suggestion=f"launcher cluster create {name} --size {job.instance_type}, or cluster.compute=null",
            code="azureml.compute",
        )
        return
    details: dict[str, Any] = target.get("properties") or {}
    if options_of(job).kubernetes_instance_type is None:
        yield from _cluster_faults(name, details, job)


def _cluster_faults(name: str, details: dict[str, Any], job: JobSpec) -> Iterator[Fault]:
    tier = "spot" if str(details.get("vmPriority", "")).lower() == "lowpriority" else "dedicated"
    if tier != job.tier:
        yield Fault(
            what=f"cluster.tier={job.tier}, and compute target {name} is {tier}: the tier is the target's own",
            keys=("cluster.tier", "cluster.compute"),
            suggestion=f"cluster.tier={tier}, or another cluster.compute",
            code="azureml.tier",
        )
    size = str(details.get("vmSize") or job.instance_type)
    if size.lower() != job.instance_type.lower():
        yield Fault(
            what=f"the plan is for {job.instance_type}, and compute target {name} has {size}",
            keys=("cluster.instance_type", "cluster.compute"),
            suggestion=f"cluster.instance_type={size}",
            code="azureml.compute_size",
        )
    most = (details.get("scaleSettings") or {}).get("maxNodeCount")
    if most is not None and job.nodes > int(most):
        yield Fault(
            what=f"{job.nodes} nodes are asked for, and compute target {name} grows to {most}",
            keys=("cluster.instance_count", "cluster.compute"),
            suggestion=f"launcher cluster scale {name} --max {job.nodes}, or cluster.instance_count={most}",
            code="azureml.compute_nodes",
        )


def _quota_faults(client: Client, job: JobSpec) -> Iterator[Fault]:
    size = size_of(job)
    quota = quota_of(size, job.tier, quotas(client))
    if quota is None or size.vcpus is None:
        return
    wanted = job.nodes * size.vcpus
    if wanted > quota.left:
        fits = quota.left // size.vcpus
        yield Fault(
            what=f"{job.nodes} x {size.name} need {wanted} vCPUs of {quota.family}; {quota.left} are left of "
            f"{quota.limit} ({quota.used} in use)",
            keys=("cluster.instance_count", "cluster.instance_type"),
            allowed=f"up to {fits} node{'s' * (fits != 1)} now",
            suggestion=f"cluster.instance_count={fits}" if fits else "ask for more: portal, Quotas, Machine learning",
            code="azureml.quota",
        )


def _name(usage: dict[str, Any]) -> str:
    name = usage.get("name")
    return str(name.get("value") if isinstance(name, dict) else name or "")
