"""What a plan takes for granted, a sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.confidence import outside_reasons
from launcher.plan.rates import MEASURED

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator
    from launcher.catalog.vm_size import VmSize
    from launcher.plan.workload import Workload


def assumptions(workload: Workload, size: VmSize, device: Accelerator, *, has_own: bool = False) -> tuple[str, ...]:
    """Every assumption that bears on this workload; ``has_own``: constants are the recipe's own."""
    if device.architecture == "cpu":
        return ("a CPU rank is taken as one core at nominal speed: nothing about this machine was measured",)
    layout = workload.layout
    nodes = layout.world > workload.hardware.gpus_per_node
    sentences = {
        f"nobody published product rates of {device.name}: 55 % of its peak is assumed": device.architecture
        not in MEASURED,
        f"the network of {size.name} is in no source: 10 Gb/s a VM is assumed": nodes
        and not size.has_infiniband
        and size.ethernet_gb_per_s is None,
        "800 Gb/s a GPU as documented; Microsoft's own health baseline of GB300 says 400": nodes
        and device.name == "GB300",
        "constants of the recipe's own calibration, not the shipped ones": has_own,
        "tokens spread evenly over experts": workload.shape.is_moe,
        "data arrive in time: no step waits for its batch": True,
        "one failure per 50,700 GPU-hours (Llama 3), 15 minutes to restart, 1.5 GB/s a node to save": not size.is_local,
        "no eviction of spot VMs is counted: their rate is in no source": not size.is_local,
    }
    return (*outside_reasons(workload), *(sentence for sentence, holds in sentences.items() if holds))
