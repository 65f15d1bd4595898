"""From a recipe to a workload: the thin step between what was asked and what the predictors take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.catalog import accelerators
from launcher.plan.families.adapters import adapter_parameters
from launcher.plan.families.decoder import shape_of
from launcher.plan.stacks import OURS
from launcher.plan.workload import Hardware, Layout, Workload
from launcher.units import GIB

if TYPE_CHECKING:
    from launcher.catalog.accelerator import Accelerator
    from launcher.catalog.vm_size import VmSize
    from launcher.plan.plan import Batch, Topology
    from launcher.recipe.schema import Cluster, Recipe

GIGABIT = 1e9 / 8
LOOPBACK_BYTES_PER_SECOND = 1e9
"""Nominal: gloo over the loopback device between processes of one CPU."""
ETHERNET_BYTES_PER_SECOND = 10 * GIGABIT
"""Assumed for a VM whose network speed is in no source."""


def accelerator_of(cluster: Cluster, size: VmSize) -> Accelerator | None:
    """The accelerator of a rank: the recipe's, else the VM size's; None for ``local_gpu`` without a name."""
    name = cluster.accelerator or size.accelerator
    return accelerators.find(name) if name else None


def hardware_of(size: VmSize, accelerator: Accelerator, *, processes: int) -> Hardware:
    """What one rank sees of ``size`` with ``processes`` ranks per node."""
    is_cpu = accelerator.architecture == "cpu"
    pcie = (size.pcie_gb_s or 0) / 2 * 1e9
    link = LOOPBACK_BYTES_PER_SECOND if is_cpu else (size.link_gb_s or 0) / 2 * 1e9 or pcie
    ethernet = size.ethernet_gb_per_s * GIGABIT if size.ethernet_gb_per_s else ETHERNET_BYTES_PER_SECOND
    infiniband = size.infiniband_gb_per_s_per_gpu
    return Hardware(
        accelerator=accelerator,
        gpus_per_node=processes,
        island=processes if is_cpu or size.is_local else size.island_gpus,
        link_bytes_per_second=link,
        network_bytes_per_second=infiniband * GIGABIT if infiniband else ethernet / processes,
        is_infiniband=infiniband is not None,
        pcie_bytes_per_second=pcie or LOOPBACK_BYTES_PER_SECOND,
        host_bytes_per_second=pcie or LOOPBACK_BYTES_PER_SECOND,
    )


def workload_of(recipe: Recipe, topology: Topology, batch: Batch, size: VmSize, accelerator: Accelerator) -> Workload:
    """The recipe as the predictors see it."""
    training = recipe.training
    return Workload(
        shape=shape_of(recipe.model),
        layout=_layout_of(recipe, topology),
        hardware=hardware_of(size, accelerator, processes=topology.processes_per_node),
        stack=OURS[recipe.parallelism.engine],
        seq=training.seq_length,
        micro_batch=batch.micro_batch_size,
        micro_batches=batch.gradient_accumulation_steps,
        precision=training.precision,
        recompute=training.activation_checkpointing,
        has_flash=training.attention != "eager",
        is_compiled=training.compile,
        lora_rank=training.lora.rank,
        adapter_parameters=adapter_parameters(recipe.model, training.lora),
    )


def usable_bytes(cluster: Cluster, size: VmSize, accelerator: Accelerator) -> int | None:
    """What one rank can allocate: the recipe's figure, else the catalogue's; None when neither knows."""
    gib = cluster.device_memory_gib
    if gib is None and accelerator.usable_gib is not None:
        gib = accelerator.usable_gib * size.gpu_fraction
    return None if gib is None else round(gib * GIB)


def _layout_of(recipe: Recipe, topology: Topology) -> Layout:
    asked = recipe.parallelism
    is_interleaved = topology.virtual_pipeline_parallel_size > 1
    return Layout(
        tensor=topology.tensor_parallel_size,
        pipeline=topology.pipeline_parallel_size,
        virtual=topology.virtual_pipeline_parallel_size,
        context=topology.context_parallel_size,
        expert=topology.expert_parallel_size,
        data=topology.data_parallel_size,
        has_sequence_parallel=asked.sequence_parallel,
        zero_stage=asked.zero_stage,
        shard_group=topology.shard_group_size,
        offload_optimizer=asked.offload_optimizer != "none",
        offload_parameters=asked.offload_parameters != "none",
        schedule=asked.pipeline_schedule or ("interleaved" if is_interleaved else "1f1b"),
    )
