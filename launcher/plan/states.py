"""Bytes of model state one rank holds: parameters, gradients, optimizer state, and what its stack keeps beside them.

After ZeRO (arXiv:1910.02054, section 3.1): 2 + 2 + 12 bytes a parameter under mixed precision; what each stack
makes of that is in the functions below.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.activations import has_autocast, width
from launcher.plan.calibrated import MEMORY
from launcher.plan.families.moe import parameters
from launcher.plan.local_parameters import LocalParameters, rank_layer
from launcher.units import GIB

if TYPE_CHECKING:
    from launcher.plan.workload import Workload

ADAM_STATE = 12
"""fp32 master, momentum and variance."""
DEEPSPEED_STATE = 16
"""And the fp32 gradient beside them (deepspeed/runtime/zero, estimate_zero2 and zero3_model_states_mem_needs)."""
DEEPSPEED_LIVE = 1_000_000_000
"""``stage3_max_live_parameters`` by default."""
DEEPSPEED_PREFETCH = 50_000_000
FP32_ACCUMULATION = 4
"""DeepSpeed's BF16 optimizer adds gradients up in fp32 beside the 16-bit ones."""


class States(NamedTuple):
    """Bytes on one rank."""

    parameters: float
    gradients: float
    optimizer: float
    gathered: float
    """Whole layers while they are in use, and their gradients before they are scattered."""
    buffers: float
    """Communication buckets, and copies of the state during initialisation or the optimizer's step."""


def states(workload: Workload, local: LocalParameters) -> States:
    """State of a rank that computes with ``local`` parameters."""
    if workload.lora_rank:
        return _lora(workload, local)
    match workload.stack.family:
        case "ddp":
            return _replicated(workload, local)
        case "fsdp":
            return _fully_sharded(workload, local)
        case "deepspeed":
            return _deepspeed(workload, local)
        case _:
            return _megatron(workload, local)


def sharded(workload: Workload, local: LocalParameters, stage: int) -> float:
    """Parameters of this rank's share of a state that ZeRO shards from ``stage`` on."""
    layout = workload.layout
    if layout.zero_stage < stage:
        return local.all
    group = min(layout.shard_group, layout.replicas)
    experts = workload.expert_replicas if local.experts else 1
    return local.dense / group + local.experts / min(experts, max(group, 1))


def _replicated(workload: Workload, local: LocalParameters) -> States:
    """Torch DDP: fp32 weights, gradients (which are the buckets), momentum and variance; 16-bit copies by autocast."""
    copies = 0 if workload.precision == "fp32" else 2 * local.all
    return States(4 * local.all, 4 * local.all, 8 * local.all, copies, 0)


def _fully_sharded(workload: Workload, local: LocalParameters) -> States:
    """FSDP: fp32 shards; 16-bit layers gathered one ahead; gradients scattered in fp32.

    Without resharding (stages 1 and 2, and any stage under a pipeline) gathered weights stay, and gradients of all
    but the last micro batch add up whole, in fp32.
    """
    layout = workload.layout
    size = width(workload) + (4 if has_autocast(workload) else 0)  # autocast gathers fp32 and keeps 16-bit copies
    shard = sharded(workload, local, 1)
    keeps = layout.zero_stage < 3 or layout.pipeline > 1
    layer = sum(rank_layer(workload))
    adds_up = 4 * local.all if keeps and workload.micro_batches > 1 else 0
    gathered = size * (local.all if keeps else 2 * layer + local.head)
    flowing = (size + 4) * max(layer, local.head)
    if layout.replicas == 1 and size == 4:
        gathered = flowing = 0
    offloaded = layout.offload_parameters or layout.offload_optimizer
    here = 0 if offloaded else shard
    return States(4 * here, 4 * here, 8 * here, gathered + adds_up + flowing, 0)


def _deepspeed(workload: Workload, local: LocalParameters) -> States:
    """ZeRO 0 to 3, with optimizer state or all state on the host: 18 bytes a parameter, as its estimators count.

    Buckets: two of gradients (``overlap_comm``) and, below stage 3, one of gathered weights.
    """
    layout, size = workload.layout, width(workload)
    stage = layout.zero_stage
    weights = size * sharded(workload, local, 3)
    # ZeRO-3 scatters gradients straight into the fp32 share, which the optimizer line counts.
    gradients = 0.0 if stage == 3 and size == 2 else size * sharded(workload, local, 2)
    moments = _deepspeed_state(size, stage) * sharded(workload, local, 1)
    reduce, gather = (size * min(elements, local.all) for elements in workload.buckets)
    buffers = 0.0 if stage == 0 else 2 * reduce + (gather if stage < 3 else 0.0)
    live = size * min(DEEPSPEED_LIVE + DEEPSPEED_PREFETCH, local.all) if stage == 3 else 0.0
    if layout.offload_optimizer:
        moments, gradients = 0.0, 0.0 if stage >= 2 else gradients
    if layout.offload_parameters:
        weights = 0.0
    return States(weights, gradients, moments, live, buffers)


def _deepspeed_state(size: int, stage: int) -> int:
    """Bytes of optimizer state a parameter: of fp32 weights, ZeRO keeps a flat copy beside the moments."""
    if size == 2:
        return DEEPSPEED_STATE
    return ADAM_STATE if stage else 8


def start_bytes(workload: Workload, local: LocalParameters) -> float:
    """Peak before the first step: ZeRO 1 and 2 flatten all 16-bit weights beside the weights themselves."""
    if workload.stack.family != "deepspeed" or workload.layout.zero_stage not in (1, 2):
        return 0.0
    return 2 * width(workload) * local.all + context_bytes(workload)


def _megatron(workload: Workload, local: LocalParameters) -> States:
    """16-bit weights, gradients added up in fp32, Adam; the distributed optimizer shards Adam alone: 6 + 12 / d."""
    if workload.stack.name == "megatron-deepspeed":
        return _megatron_deepspeed(workload, local)
    size = width(workload)
    stage = workload.layout.zero_stage
    if stage == 3:
        gathered = (size + 4) * 2 * sum(rank_layer(workload)) + size * local.ends
        shard = sharded(workload, local, 3)
        return States(size * shard, size * shard, ADAM_STATE * shard, gathered, 0)
    gradient = size if size == 4 or not workload.accumulates_fp32 else 4
    moments = ADAM_STATE * sharded(workload, local, 1)
    return States(size * local.all, gradient * local.all, moments, 0, 0)


def _megatron_deepspeed(workload: Workload, local: LocalParameters) -> States:
    """ZeRO-1 of 2022: 16-bit weights and gradients, Adam and a fp32 copy of its gradients sharded, two buckets."""
    shard = sharded(workload, local, 1)
    gradient = 2 + (FP32_ACCUMULATION if workload.accumulates_fp32 else 0)
    bucket = 2 * min(workload.buckets[0], local.all) if workload.layout.zero_stage else 0
    return States(2 * local.all, gradient * local.all, ADAM_STATE * shard, 0, 2 * bucket + 4 * shard)


def _lora(workload: Workload, local: LocalParameters) -> States:
    """Frozen weights as the engine holds weights; gradients, optimizer state and buckets of the adapters alone."""
    whole = replace(workload, lora_rank=0)
    adapters = workload.adapter_parameters / workload.layout.tensor / workload.layout.pipeline
    frozen, trained = states(whole, local), states(whole, LocalParameters(adapters, 0.0, 0.0))
    parameters = frozen.parameters + trained.parameters
    return States(parameters, trained.gradients, trained.optimizer, frozen.gathered, trained.buffers)


def checkpoint_bytes(workload: Workload) -> int:
    """Bytes of a checkpoint over all ranks: weights and Adam's moments in fp32; of adapters alone, if there are any."""
    return 12 * (workload.adapter_parameters or parameters(workload.shape))


CONTEXT_BYTES = 1.25 * GIB
"""CUDA context and kernels: 1,271 MiB (BLOOM chronicles, V100; ``nvidia-smi`` of an idle process with NCCL loaded)."""
COMMUNICATOR_BYTES = 0.25 * GIB
"""Buffers of one NCCL communicator: channels x 4 MiB x both directions, assumed alike for every axis."""


def context_bytes(workload: Workload) -> float:
    """What the device holds outside the allocator: the context, and a communicator for each axis in use.

    Megatron-DeepSpeed of 2022 held some GiB more (eager NCCL connections, engine buffers): fitted to the BLOOM rows.
    """
    if workload.hardware.accelerator.architecture == "cpu":
        return 0.0
    layout = workload.layout
    axes = sum(size > 1 for size in (layout.tensor, layout.pipeline, layout.context, layout.data, layout.expert))
    engine = MEMORY["megatron_deepspeed_gib"] * GIB if workload.stack.name == "megatron-deepspeed" else 0.0
    return CONTEXT_BYTES + COMMUNICATOR_BYTES * axes + engine
