"""GPU sizes of the workspace's region: what quota there is, what is left of it, and which clusters hold some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.backends.azureml.clusters import clusters
from launcher.backends.azureml.preflight import quota_of, quotas
from launcher.catalog.vm_sizes import VM_SIZES

if TYPE_CHECKING:
    from launcher.backends.azureml.client import Client
    from launcher.backends.azureml.clusters import Cluster
    from launcher.backends.azureml.preflight import Quota
    from launcher.catalog.vm_size import VmSize


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One VM size in this region."""

    size: VmSize
    is_offered: bool
    """Whether the service lists the size here at all."""
    quota: Quota | None
    clusters: tuple[Cluster, ...]

    @property
    def nodes_left(self) -> int | None:
        """VMs the quota still allows; None where it is unknown."""
        if self.quota is None or not self.size.vcpus:
            return None
        return self.quota.left // self.size.vcpus


def offers(client: Client) -> tuple[Offer, ...]:
    """Every GPU size of the catalogue that this region offers or has quota for."""
    known = quotas(client)
    here = {str(row.get("name", "")).lower() for row in client.regional("vmSizes")}
    targets = tuple(clusters(client))
    found = (
        Offer(
            size=size,
            is_offered=size.name.lower() in here,
            quota=quota_of(size, "dedicated", known),
            clusters=tuple(target for target in targets if target.size.lower() == size.name.lower()),
        )
        for size in VM_SIZES
        if size.gpus and not size.is_local and size.status != "retired"
    )
    return tuple(offer for offer in found if offer.is_offered or (offer.quota and offer.quota.limit))
