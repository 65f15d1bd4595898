"""VM sizes by name: Azure's GPU sizes, one CPU size for tests on Azure ML, and this machine."""

from __future__ import annotations

from launcher.catalog.azure_nc import NC_SIZES
from launcher.catalog.azure_nd import ND_SIZES
from launcher.catalog.vm_size import Price, VmSize
from launcher.errors import PlanError
from launcher.registry import nearest

_FREE = Price(dollars_per_hour=0.0, region="here", date="always", source="this machine")

LOCAL_CPU = VmSize(
    name="local_cpu",
    series="local",
    accelerator="CPU",
    gpus=0,
    vcpus=None,
    ram_gib=None,
    local_disk_gib=None,
    island_gpus=1,
    link_gb_s=None,
    pcie_gb_s=None,
    infiniband_gb_per_s_per_gpu=None,
    ethernet_gb_per_s=None,
    quota_family=None,
    nccl_profile=None,
    price=_FREE,
    source="this machine",
)

LOCAL_GPU = VmSize(
    name="local_gpu",
    series="local",
    accelerator=None,
    gpus=1,
    vcpus=None,
    ram_gib=None,
    local_disk_gib=None,
    island_gpus=1,
    link_gb_s=None,
    pcie_gb_s=64,
    infiniband_gb_per_s_per_gpu=None,
    ethernet_gb_per_s=None,
    quota_family=None,
    nccl_profile=None,
    price=_FREE,
    source="this machine",
    note="cluster.accelerator says which GPU; cluster.processes_per_instance how many",
)

AZURE_CPU = VmSize(
    name="Standard_D4s_v3",
    series="Dsv3",
    accelerator="CPU",
    gpus=0,
    vcpus=4,
    ram_gib=16,
    local_disk_gib=32,
    island_gpus=1,
    link_gb_s=None,
    pcie_gb_s=None,
    infiniband_gb_per_s_per_gpu=None,
    ethernet_gb_per_s=2,
    quota_family="standardDSv3Family",
    nccl_profile=None,
    source="azure-compute-docs dsv3-series.md (2 Gb/s expected network); price not in a stored source",
    note="a CPU size, to try Azure ML without GPU quota",
)

VM_SIZES: tuple[VmSize, ...] = (LOCAL_CPU, LOCAL_GPU, AZURE_CPU, *ND_SIZES, *NC_SIZES)

_BY_NAME = {size.name.lower(): size for size in VM_SIZES}


def find(name: str) -> VmSize:
    """The VM size called ``name``, in any case; PlanError with near misses otherwise."""
    found = _BY_NAME.get(name.lower())
    if found is not None:
        return found
    close = nearest(name, (size.name for size in VM_SIZES))
    raise PlanError(
        f"the catalogue has no VM size {name!r}",
        keys=("cluster.instance_type",),
        allowed=", ".join(close or [size.name for size in VM_SIZES]),
        suggestion=f"cluster.instance_type={close[0]}" if close else None,
        code="plan.instance_type",
    )
