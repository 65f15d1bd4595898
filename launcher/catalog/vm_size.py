"""What one VM size is: GPUs, links, disks, price, quota family; with the source and date of the row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Price:
    """Dollars per VM and hour, pay as you go. ``None`` is unknown, never zero."""

    dollars_per_hour: float | None = None
    spot_dollars_per_hour: float | None = None
    region: str | None = None
    date: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class VmSize:
    """One Azure VM size, or this machine (``local_cpu``, ``local_gpu``)."""

    name: str
    series: str
    accelerator: str | None
    """Catalogue name of the GPU; None for ``local_gpu`` (the recipe says which)."""
    gpus: int
    """GPUs per VM; 0 for a CPU size."""
    vcpus: int | None
    ram_gib: float | None
    local_disk_gib: float | None
    """Temporary and NVMe disks together."""
    island_gpus: int
    """GPUs that reach each other over NVLink or xGMI: 1 over PCIe, 72 in an NVL72 rack."""
    link_gb_s: float | None
    """NVLink or xGMI bandwidth per GPU, both directions together, GB/s."""
    pcie_gb_s: float | None
    """Host link per GPU, both directions together, GB/s."""
    infiniband_gb_per_s_per_gpu: float | None
    """InfiniBand per GPU, Gb/s (gigabit); None without."""
    ethernet_gb_per_s: float | None
    """Front-end network of the VM, Gb/s (gigabit)."""
    quota_family: str | None
    nccl_profile: str | None
    """Which NCCL settings fit: ``ndv2, ndv4, ndv5, graceblackwell, ncv4, ncv4-nc48, ncv6, mi300x``."""
    architecture: Literal["x86_64", "aarch64"] = "x86_64"
    status: Literal["current", "retired", "preview"] = "current"
    status_since: str | None = None
    gpu_fraction: float = 1.0
    """Share of one GPU the VM has (NVads A10 v5 smaller sizes)."""
    price: Price = field(default_factory=Price)
    source: str
    note: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it is this machine."""
        return self.name.startswith("local_")

    @property
    def has_infiniband(self) -> bool:
        """Whether nodes can be joined at full speed."""
        return self.infiniband_gb_per_s_per_gpu is not None


def normalise_family(family: str) -> str:
    """A quota family in one spelling: services differ in case, blanks, underscores and a trailing "family"."""
    return family.lower().replace(" ", "").replace("_", "").removesuffix("family")
