"""Communication settings of each VM size: what NCCL and UCX must be told inside an Azure ML container.

Microsoft's VM images carry these in ``/etc/nccl.conf``; a container does not, so they travel as environment
variables. A topology file is named only when the image is ours, whose Dockerfile puts it there
(``environments/cuda/Dockerfile``); a path that is not there makes NCCL fail.

Sources, read 2026-11-30: Azure/azhpc-images@8e9d055 ``components/customizations/{ndv2,ndv4,ndv5,ncv4,ncv6}.sh``;
Azure/ai-infrastructure-on-azure@a01b073 ``infrastructure_validations/slurm/NCCL/configs/{hopper,graceblackwell}.conf``;
Azure/azurehpc@2d57191 ``run_nccl_tests_ndv4``; microsoft/Megatron-DeepSpeed@f4157be
``examples_deepspeed/azureml/aml_submit.py``; defaults from NVIDIA/nccl@5067397.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.catalog.vm_size import VmSize

TOPOLOGY_FOLDER = "/opt/launcher/topology"
"""Where our own CUDA image keeps the topology files."""

EVERY_GPU = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the topology file counts GPUs in PCI order
    "NCCL_DEBUG": "WARN",
    "NCCL_SOCKET_IFNAME": "eth0",  # bootstrap goes over the Ethernet card
}
_NO_INFINIBAND = {"NCCL_IB_DISABLE": "1"}  # NCCL would fall back to sockets anyway; this says so


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Settings of one family of VM sizes."""

    variables: dict[str, str]
    topology: str | None = None
    """File of ``TOPOLOGY_FOLDER`` that describes the VM's PCI tree, which the hypervisor hides."""


PROFILES: dict[str, Profile] = {
    "ndv2": Profile(
        variables={"NCCL_IGNORE_CPU_AFFINITY": "1"},
        topology="ndv2-topo.xml",
    ),
    "ndv4": Profile(
        variables={
            "NCCL_IB_PCI_RELAXED_ORDERING": "1",  # needed for full GPUDirect speed in a VM
            "NCCL_IGNORE_CPU_AFFINITY": "1",
            "OMPI_MCA_coll_hcoll_enable": "0",
            "UCX_IB_PCI_RELAXED_ORDERING": "on",
            "UCX_NET_DEVICES": "eth0",
            "UCX_TLS": "tcp",
        },
        topology="ndv4-topo.xml",
    ),
    "ndv5": Profile(
        variables={
            "NCCL_IB_PCI_RELAXED_ORDERING": "1",
            "NCCL_IB_QPS_PER_CONNECTION": "4",
            "NCCL_IGNORE_CPU_AFFINITY": "1",
            "NCCL_MIN_NCHANNELS": "32",
            "NCCL_P2P_NET_CHUNKSIZE": "2097152",
            "NCCL_PXN_DISABLE": "1",
            "OMPI_MCA_coll_hcoll_enable": "0",
            "UCX_NET_DEVICES": "mlx5_ib0:1",
            "UCX_TLS": "rc",
        },
        topology="ndv5-topo.xml",
    ),
    # Four GPUs a VM inside a 72-GPU NVLink domain; no topology file, and Hopper's values must not be carried over.
    "graceblackwell": Profile(
        variables={
            "NCCL_DMABUF_ENABLE": "1",
            "NCCL_IB_DISABLE": "0",
            "NCCL_IB_QPS_PER_CONNECTION": "4",
            "NCCL_IB_SL": "1",  # service level of Azure's NDR fabric: required
            "NCCL_IGNORE_CPU_AFFINITY": "1",
            "NCCL_MNNVL_ENABLE": "1",  # multi-node NVLink, needs IMEX
            "NCCL_NET_GDR_C2C": "1",
            "NCCL_NET_GDR_LEVEL": "PHB",
            "NCCL_NVLS_ENABLE": "1",
            "NCCL_P2P_DISABLE": "0",
            "NCCL_P2P_NET_CHUNKSIZE": "2097152",
            "NCCL_SHM_DISABLE": "1",
            "UCX_NET_DEVICES": "mlx5_ib0:1",
        },
    ),
    # The graph file is for all four GPUs; with fewer NCCL stops at "XML Import Channel" (azhpc-images#327).
    "ncv4": Profile(
        variables={"NCCL_IGNORE_CPU_AFFINITY": "1", **_NO_INFINIBAND},
        topology="ncv4-topo.xml",
    ),
    "ncv4-nc48": Profile(variables={"NCCL_IGNORE_CPU_AFFINITY": "1", **_NO_INFINIBAND}),
    "ncv6": Profile(variables=_NO_INFINIBAND),
    # RCCL; azhpc-images holds a placeholder only, so nothing is claimed.
    "mi300x": Profile(variables={}),
}


def variables(size: VmSize, *, topology_in_image: bool) -> dict[str, str]:
    """Environment variables every rank needs on ``size``; none on a CPU size."""
    if size.gpus == 0:
        return {}
    found = PROFILES.get(size.nccl_profile or "")
    if found is None:
        return EVERY_GPU | ({} if size.has_infiniband else _NO_INFINIBAND)
    topology = {"NCCL_TOPO_FILE": f"{TOPOLOGY_FOLDER}/{found.topology}"} if found.topology else {}
    return EVERY_GPU | found.variables | (topology if topology_in_image else {})


def wants_topology(size: VmSize) -> bool:
    """Whether ``size`` is slower between nodes without a topology file."""
    found = PROFILES.get(size.nccl_profile or "")
    return found is not None and found.topology is not None
