"""How fast groups of ranks reach each other: over NVLink, over PCIe, between nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.plan.rates import ETHERNET_SHARE, link_share

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.workload import Hardware

LARGE_SHARE = 0.85
"""Of the one-way link, large messages inside an island (azure_nccl_allreduce.csv, from 1 GiB)."""
PCIE_SHARE = 0.6
"""Of the one-way PCIe bandwidth, all GPUs of a node at once: assumed."""
STEP_SECONDS = 15e-6
"""Latency of one collective per doubling of its ranks."""


@dataclass(frozen=True, kw_only=True)
class Links:
    """Bandwidths one rank sees, bytes/s, with what software leaves of them."""

    hardware: Hardware
    family: str
    tensor_share: float
    network: float
    """Between nodes, per GPU."""

    def is_inside(self, ranks: int) -> bool:
        """Whether neighbouring ``ranks`` share an island."""
        return ranks <= self.hardware.island

    def tensor(self, size: float, ranks: int) -> float:
        """Bus bandwidth of an all-reduce of ``size`` bytes among neighbouring ``ranks``."""
        hardware = self.hardware
        if self.is_inside(ranks):
            return hardware.link_bytes_per_second * link_share(self.family, size) * self.tensor_share
        return self._beyond(ranks)

    def gather(self, ranks: int, stride: int) -> float:
        """Bandwidth at which a rank receives the parts of ``ranks`` ranks that are ``stride`` apart."""
        hardware = self.hardware
        if ranks * stride <= hardware.island:
            return hardware.link_bytes_per_second * LARGE_SHARE
        if ranks * stride <= hardware.gpus_per_node:
            return hardware.pcie_bytes_per_second * PCIE_SHARE
        inner = hardware.link_bytes_per_second * LARGE_SHARE
        here = max(1, max(hardware.island, hardware.gpus_per_node) // stride)
        return min(inner, self.network * min(here, ranks))

    def point_to_point(self, *, crosses_nodes: bool) -> float:
        """Bandwidth between neighbouring pipeline stages."""
        return self.network if crosses_nodes else 0.7 * self.hardware.link_bytes_per_second

    def ring(self, ranks: int) -> float:
        """Bandwidth between neighbours of a ring of context ranks that spans ``ranks``."""
        return 0.7 * self.hardware.link_bytes_per_second if self.is_inside(ranks) else self._beyond(ranks)

    def _beyond(self, ranks: int) -> float:
        if ranks <= self.hardware.gpus_per_node:
            return self.hardware.pcie_bytes_per_second * PCIE_SHARE
        return self.network


def links_of(hardware: Hardware, constants: Calibration) -> Links:
    """The links of ``hardware`` under the fitted shares."""
    share = constants.network_share if hardware.is_infiniband else ETHERNET_SHARE
    network = hardware.network_bytes_per_second or hardware.pcie_bytes_per_second
    return Links(
        hardware=hardware,
        family=hardware.accelerator.architecture,
        tensor_share=constants.tensor_link,
        network=network * share,
    )
