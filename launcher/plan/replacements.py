"""What stands in for hardware that training does not run on."""

from __future__ import annotations

SUCCESSORS = {1: "Standard_NC24ads_A100_v4", 2: "Standard_NC48ads_A100_v4", 4: "Standard_NC96ads_A100_v4"}
"""Of the retired NCv3 sizes, by GPUs."""
WHOLE_GPU = "Standard_NV36ads_A10_v5"
"""The smallest size of the NVads A10 v5 series with a whole GPU."""
ROOMIEST = "Standard_ND96isr_H200_v5"
"""Most memory a GPU that runs CUDA images of x86-64, and InfiniBand."""
SOME_GPU = "A100-SXM-80GB"
"""A GPU to name where nobody said which this machine has."""


def with_infiniband(name: str) -> str:
    """The VM size ``name`` with InfiniBand between nodes, where the series has such a one; else itself."""
    return name.replace("ND96is_", "ND96isr_")
