"""Rules of where it runs: VM size, nodes, network, tier, Azure ML's limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.plan.replacements import SOME_GPU, SUCCESSORS, WHOLE_GPU, with_infiniband
from launcher.plan.rules.case import finding
from launcher.plan.shared_memory import shm_bytes, shm_size
from launcher.units import GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case

MAX_NODES = 100
"""Azure ML's default for MPI jobs and RDMA clusters (how-to-manage-quotas.md, read 2026-11-30)."""
WORKER_SHM_BYTES = 1 * GIB
"""Shared memory one loader worker may fill with prefetched batches."""
_SUCCESSORS = {1: "Standard_NC24ads_A100_v4", 2: "Standard_NC48ads_A100_v4", 4: "Standard_NC96ads_A100_v4"}
"""Of the retired NCv3 sizes, by GPUs."""
_SOFTWARE = {
    "cpu": "built without CUDA",
    "cuda": "CUDA for x86_64",
    "cuda_arm64": "CUDA for aarch64 (arm64: Grace CPUs)",
    "rocm": "ROCm",
}
"""What the images of ``environments/`` hold."""
_TYPE, _COUNT, _PER_NODE = "cluster.instance_type", "cluster.instance_count", "cluster.processes_per_instance"


def processes(case: Case) -> Iterator[Finding]:
    """One rank per GPU: more collide on a device, fewer leave GPUs that are paid for idle."""
    asked, gpus, name = case.recipe.cluster.processes_per_instance, case.size.gpus, case.size.name
    if asked is None or case.size.is_local or gpus == 0 or asked == gpus:
        return
    noun = "1 GPU" if gpus == 1 else f"{gpus} GPUs per node"
    if asked > gpus:
        nodes = case.recipe.cluster.instance_count * -(-asked // gpus)
        yield finding(
            "error",
            "processes",
            f"{name} has {noun}: processes_per_instance={asked} (process_count_per_instance={asked}) would put more "
            f"than one process on a GPU ({asked} > {gpus}); processes are counted per node, not over all nodes",
            _PER_NODE,
            _TYPE,
            allowed=f"{gpus}, or leave it out",
            edits=((f"{_PER_NODE}={gpus}",), (f"{_COUNT}={nodes}", f"{_PER_NODE}={gpus}")),
        )
    else:
        yield finding(
            "warning",
            "processes",
            f"{asked} processes leave {gpus - asked} of {name}'s {noun} idle",
            _PER_NODE,
            _TYPE,
            edits=((f"{_PER_NODE}=null",),),
        )


def status(case: Case) -> Iterator[Finding]:
    """A retired size cannot be created; a preview may not be offered."""
    if case.size.status == "retired":
        yield finding(
            "error",
            "retired",
            f"{case.size.name} was retired on {case.size.status_since}",
            _TYPE,
            allowed="a current size",
            edits=((f"{_TYPE}={SUCCESSORS[case.size.gpus]}",),),
        )
    elif case.size.status == "preview":
        yield finding("warning", "preview", f"{case.size.name} is in preview since {case.size.status_since}", _TYPE)


def network(case: Case) -> Iterator[Finding]:
    """Nodes without InfiniBand are joined by Ethernet only."""
    size, nodes = case.size, case.recipe.cluster.instance_count
    if nodes == 1 or case.is_cpu or size.is_local or size.has_infiniband:
        return
    sibling = with_infiniband(size.name)
    if sibling != size.name:
        yield finding(
            "error",
            "no_infiniband",
            f"{nodes} nodes of {size.name} have no InfiniBand between them (no 'r' in the size)",
            _TYPE,
            _COUNT,
            allowed=f"{sibling}, or one node",
            edits=((f"{_TYPE}={sibling}",), (f"{_COUNT}=1",)),
        )
    else:
        speed = f"{size.ethernet_gb_per_s:g} Gb/s Ethernet" if size.ethernet_gb_per_s else "Ethernet of unknown speed"
        message = f"{nodes} nodes of {size.name} are joined by {speed}, shared by {case.processes} GPUs: no InfiniBand"
        yield finding("warning", "no_infiniband", message, _TYPE, _COUNT)


def fraction(case: Case) -> Iterator[Finding]:
    """A share of a GPU does not join others."""
    if case.size.gpu_fraction < 1 and case.world > 1:
        yield finding(
            "error",
            "gpu_fraction",
            f"{case.size.name} has {case.size.gpu_fraction:.2g} of one GPU: not for distributed training",
            _TYPE,
            _COUNT,
            edits=((f"{_TYPE}={WHOLE_GPU}",), (f"{_COUNT}=1",)),
        )


def image(case: Case) -> Iterator[Finding]:
    """The container must be built for the machine's processor and accelerator."""
    environment, size, fitting = case.recipe.environment, case.size, _fitting_environment(case)
    if case.recipe.cluster.backend != "azureml" or size.gpus == 0:
        return
    if environment.image or environment.asset:
        if fitting != "cuda":
            message = f"{size.name} needs {_SOFTWARE[fitting]}: nobody has looked whether the image named here has it"
            yield finding("warning", "environment", message, "environment.image", "environment.asset", _TYPE)
    elif environment.name in _SOFTWARE and environment.name != fitting:
        yield finding(
            "error",
            "environment",
            f"environment {environment.name} is {_SOFTWARE[environment.name]}; {size.name} needs {_SOFTWARE[fitting]}",
            "environment.name",
            _TYPE,
            allowed=f"{fitting}, or an image of your own",
            edits=((f"environment.name={fitting}",),),
        )


def _fitting_environment(case: Case) -> str:
    """Which of our environments runs on the machine."""
    if case.accelerator is not None and case.accelerator.architecture == "cdna3":
        return "rocm"
    return "cuda" if case.size.architecture == "x86_64" else "cuda_arm64"


def backend(case: Case) -> Iterator[Finding]:
    """Azure ML runs Azure's sizes; this machine runs itself."""
    cluster = case.recipe.cluster
    if cluster.backend == "azureml" and (case.size.is_local or cluster.compute == "local"):
        what = f"instance type {case.size.name}" if case.size.is_local else "compute 'local'"
        yield finding(
            "error",
            "backend_local",
            f"backend azureml cannot run on {what}: use cluster.backend=local for this machine",
            "cluster.backend",
            "cluster.compute" if cluster.compute == "local" else _TYPE,
            allowed="cluster.backend=local, or an Azure VM size and compute",
            edits=(("cluster.backend=local", "cluster.compute=null"),),
        )
    if cluster.backend == "local" and not case.size.is_local:
        message = f"planned for {cluster.instance_count} x {case.size.name}, but backend local runs the ranks here"
        yield finding("warning", "backend_local", message, "cluster.backend", _TYPE)


def local_accelerator(case: Case) -> Iterator[Finding]:
    """Without the GPU's name nothing about it is known."""
    if case.accelerator is None:
        message = "cluster.accelerator does not say which GPU this machine has: nothing about it can be planned"
        edits = ((f"cluster.accelerator={SOME_GPU}",), ("cluster.instance_type=local_cpu",))
        yield finding("error", "accelerator", message, "cluster.accelerator", _TYPE, edits=edits)


def node_limit(case: Case) -> Iterator[Finding]:
    """Azure ML's default limit on nodes."""
    nodes = case.recipe.cluster.instance_count
    if case.recipe.cluster.backend == "azureml" and nodes > MAX_NODES:
        message = f"{nodes} nodes are more than Azure ML's default limit of {MAX_NODES}: ask support to raise it"
        yield finding("warning", "node_limit", message, _COUNT)


def shared_memory(case: Case) -> Iterator[Finding]:
    """A team's loader hands batches over in shared memory, of which containers have 2 GB unless told otherwise.

    Our own reads ahead in threads and needs none.
    """
    asked = case.recipe.cluster.shm_size
    workers = case.recipe.data.num_workers if case.recipe.entry.script else 0
    if asked is not None and not re.fullmatch(r"\d+[bkmg]?", asked.lower()):
        message = f"shm_size {asked!r} is not a number with b, k, m or g"
        yield finding("error", "shm_size", message, "cluster.shm_size", edits=(("cluster.shm_size=null",),))
        return
    offered, needed = shm_bytes(shm_size(case.recipe.cluster, case.size)), workers * case.processes * WORKER_SHM_BYTES
    if workers and offered < needed and not case.size.is_local:
        message = f"{workers} loader workers x {case.processes} ranks may need {format_bytes(needed)} of shared memory"
        edits = ((f"cluster.shm_size={-(-needed // GIB)}g",), ("data.num_workers=0",))
        keys = ("cluster.shm_size", "data.num_workers")
        yield finding(
            "warning", "shm_size", f"{message}; the container has {format_bytes(offered)}", *keys, edits=edits
        )
