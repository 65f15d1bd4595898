"""Quota and VM sizes of the emulated region, from the launcher's own catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launcher.catalog.vm_size import normalise_family
from launcher.catalog.vm_sizes import VM_SIZES
from launcher.emulator.settings import PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.catalog.vm_size import VmSize
    from launcher.emulator.workspace import Job, Workspace

_TOTAL_DEDICATED, _TOTAL_SPOT = "TotalDedicatedCores", "TotalLowPriorityCores"
_SIZES = {size.name.lower(): size for size in VM_SIZES if not size.is_local and size.vcpus}


def size_of(job: Job, workspace: Workspace) -> VmSize | None:
    """The VM size a job runs on: its own, or its compute target's; None when the catalogue has no such size."""
    own = (job.properties.get("resources") or {}).get("instanceType")
    compute = (job.properties.get("computeId") or "").rpartition("/")[2].lower()
    target = workspace.resources.get(f"computes/{compute}", {}).get("properties", {})
    name = own or (target.get("properties") or {}).get("vmSize") or ""
    return _SIZES.get(name.lower())


def cores_of(job: Job, workspace: Workspace) -> int:
    """Cores (vCPUs) a job holds while it runs."""
    size = size_of(job, workspace)
    return job.nodes * (size.vcpus or 0) if size else 0


def limit(family: str, workspace: Workspace) -> int:
    """Cores (vCPUs) the subscription may hold of ``family``; every service spells families its own way."""
    settings = workspace.settings
    limits = {normalise_family(name): cores for name, cores in settings.cores_by_family.items()}
    return limits.get(normalise_family(family), settings.default_cores)


def in_use(family: str, workspace: Workspace, *, but: Job | None = None) -> int:
    """Cores of ``family`` that jobs hold now."""
    holders = ("Preparing", "Running", "Finalizing", "CancelRequested")
    return sum(
        cores_of(job, workspace)
        for job in workspace.jobs.values()
        if job is not but and job.state in holders and _family(job, workspace) == normalise_family(family)
    )


def usages(workspace: Workspace) -> list[dict[str, Any]]:
    """The answer to ``usages``: what is used and what is allowed, a family each."""
    settings = workspace.settings
    path = f"/subscriptions/{settings.subscription}/providers/{PROVIDER}/locations/{settings.location}/usages"
    families = sorted({size.quota_family for size in _SIZES.values() if size.quota_family})
    rows = [(family, in_use(family, workspace), limit(family, workspace)) for family in families]
    total = sum(used for _, used, _ in rows)
    rows += [(_TOTAL_DEDICATED, total, settings.default_cores), (_TOTAL_SPOT, 0, settings.default_cores)]
    return [
        {
            "id": f"{path}/{name}",
            "type": f"{PROVIDER}/locations/usages",
            "unit": "Count",
            "currentValue": used,
            "limit": allowed,
            "name": {"value": name, "localizedValue": name},
        }
        for name, used, allowed in rows
    ]


def vm_sizes(workspace: Workspace) -> list[dict[str, Any]]:
    """The answer to ``vmSizes``."""
    return [_described(size) for size in _SIZES.values()]


def shortage(job: Job, workspace: Workspace) -> Iterator[str]:
    """What a job waits for."""
    settings = workspace.settings
    running = sum(one.nodes * one.processes_per_node for one in workspace.jobs.values() if one.state == "Running")
    if running + job.nodes * job.processes_per_node > settings.processes:
        yield f"{job.nodes * job.processes_per_node} processes, and this machine runs {settings.processes}"
    size = size_of(job, workspace)
    family = size.quota_family if size else None
    if family and in_use(family, workspace, but=job) + cores_of(job, workspace) > limit(family, workspace):
        yield f"quota of {family}: {cores_of(job, workspace)} vCPUs wanted, {limit(family, workspace)} allowed"


def _family(job: Job, workspace: Workspace) -> str | None:
    size = size_of(job, workspace)
    return normalise_family(size.quota_family) if size and size.quota_family else None


def _described(size: VmSize) -> dict[str, Any]:
    return {
        "name": size.name,
        "family": size.quota_family,
        "vCPUs": size.vcpus,
        "gpus": size.gpus,
        "osVhdSizeMB": 1_047_552,
        "maxResourceVolumeMB": int((size.local_disk_gib or 0) * 1024),
        "memoryGB": size.ram_gib,
        "lowPriorityCapable": True,
        "premiumIO": True,
        "supportedComputeTypes": ["AmlCompute", "ComputeInstance"],
        "estimatedVMPrices": None,
    }
