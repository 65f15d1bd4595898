"""Seconds the data-parallel ranks spend exchanging gradients and parameters that compute does not hide."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from launcher.plan.families.moe import parameters
from launcher.plan.links import STEP_SECONDS
from launcher.plan.local_parameters import local_parameters, rank_layer
from launcher.plan.profile import PREFETCHING_DEEPSPEED
from launcher.plan.rates import rates

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.layer_time import LayerSeconds
    from launcher.plan.links import Links
    from launcher.plan.local_parameters import LocalParameters
    from launcher.plan.profile import Profile
    from launcher.plan.workload import Workload

ADAM_BYTES = 30
"""Read and write of fp32 master, momentum and variance (24), gradient (4), working weight (2)."""
HIDING_SHARE = 0.6
"""Share of a step's compute behind which bucketed all-reduces can run: the backward pass."""
LAST_BUCKET = 0.05
"""Share of an overlapped exchange that nothing is left to hide."""
PIPELINED_FSDP = 0.1
"""Share of one gather and scatter of the stage that FSDP exposes under a pipeline, which keeps parameters."""


def busiest_parameters(workload: Workload) -> LocalParameters:
    """Parameters of the rank that has most to exchange: an average stage with one end."""
    layout = workload.layout
    layers = workload.shape.layers / layout.pipeline
    return local_parameters(workload, layers=layers, has_first=True, has_last=layout.pipeline == 1)


def exchange_seconds(
    workload: Workload, profile: Profile, links: Links, constants: Calibration, layer: LayerSeconds, busy: float
) -> float:
    """Exposed seconds of a step. ``busy``: compute of the step on the slowest stage."""
    layout = workload.layout
    if layout.replicas == 1:
        return 0.0
    if workload.lora_rank:
        return _lora(workload, links)
    if layout.zero_stage == 3:
        return _sharded(workload, profile, links, constants, layer)
    return _replicated(workload, profile, links, busy)


def optimizer_seconds(workload: Workload, constants: Calibration) -> float:
    """Adam over this rank's share of the state, on the GPU or on the host."""
    layout, local = workload.layout, busiest_parameters(workload)
    shared = min(layout.shard_group, layout.replicas) if layout.zero_stage else 1
    expert_shared = workload.expert_replicas if layout.zero_stage else 1
    owned = local.dense / shared + local.experts / expert_shared
    if workload.lora_rank:
        owned *= workload.adapter_parameters / parameters(workload.shape)
    if layout.offload_optimizer:
        return _host_seconds(workload, owned)
    memory = rates(workload.hardware.accelerator).memory
    return owned * ADAM_BYTES * constants.optimizer_passes / memory


def _host_seconds(workload: Workload, owned: float) -> float:
    """Adam on the host: gradients down and weights up over PCIe, state through host memory.

    200 GB/s of host memory a node, shared by its ranks: two sockets of eight DDR4-3200 channels at half their peak.
    """
    hardware = workload.hardware
    if hardware.accelerator.architecture == "cpu":
        return owned * ADAM_BYTES / rates(hardware.accelerator).memory
    return owned * (4 / hardware.host_bytes_per_second + ADAM_BYTES * hardware.gpus_per_node / 200e9)


def _replicated(workload: Workload, profile: Profile, links: Links, busy: float) -> float:
    """All-reduce of gradients, or reduce-scatter and all-gather of parameters (ZeRO 1 and 2)."""
    layout, local = workload.layout, busiest_parameters(workload)
    wire = _wire_bytes(workload, profile)
    ranks = layout.replicas
    seconds = wire * local.dense * (ranks - 1) / ranks / links.gather(ranks, layout.tensor)
    if local.experts:
        copies = workload.expert_replicas
        seconds += wire * local.experts * (copies - 1) / copies / links.gather(copies, layout.expert)
    if profile.kind in ("megatron", "old-megatron"):
        return seconds * (1 - profile.data_overlap)
    return max(0.0, seconds - HIDING_SHARE * busy) + LAST_BUCKET * seconds


def _wire_bytes(workload: Workload, profile: Profile) -> float:
    """Bytes a parameter that cross: gradients (twice when all-reduced), and 2 of updated weights under ZeRO."""
    gradient = profile.gradient_wire_bytes
    if workload.layout.zero_stage == 0:
        return 2 * 4
    if profile.kind == "old-megatron":  # DeepSpeed's ZeRO-1 of 2022 all-reduced, in fp32 under bf16
        return (8 if workload.precision == "bf16" else 4) + 2
    if workload.layout.zero_stage == 2 and profile.kind == "fsdp":
        return 2 + 2
    return gradient + 2


def _sharded(workload: Workload, profile: Profile, links: Links, constants: Calibration, layer: LayerSeconds) -> float:
    """ZeRO-3 and FSDP: gather in forward, gather and scatter in backward, layer by layer, behind the present layer."""
    layout = workload.layout
    group = min(layout.shard_group, layout.replicas)
    size = 2 * sum(rank_layer(workload))
    wide = 2 if workload.stack.name in ("torchtitan", "fsdp") else 1  # gradients scattered in fp32
    bandwidth = links.gather(group, layout.tensor)
    if profile.kind == "deepspeed":
        bandwidth = 1 / (1 / bandwidth + 1 / (constants.deepspeed_gather_rate * 1e9))
    gather = size * (group - 1) / group / bandwidth + STEP_SECONDS * log2(group + 1)
    scatter = wide * size * (group - 1) / group / bandwidth + STEP_SECONDS * log2(group + 1)
    layers = workload.shape.layers / layout.pipeline
    passes = workload.micro_batches * layers
    if layout.pipeline > 1:
        return PIPELINED_FSDP * layers * (gather + scatter)
    if profile.kind == "deepspeed":
        hidden = constants.deepspeed_overlap if workload.stack.release > PREFETCHING_DEEPSPEED else 0.0
        return passes * (2 * gather + scatter) * (1 - hidden)
    late = max(0.0, gather - layer.forward) + max(0.0, gather + scatter - layer.backward)
    contention = constants.fsdp_contention * (2 + wide) * size / links.hardware.link_bytes_per_second
    latency = 3 * constants.fsdp_seconds_per_rank * group
    return passes * (late + contention + latency) + 2 * gather + scatter


def _lora(workload: Workload, links: Links) -> float:
    """Adapters alone are exchanged: 8 bytes for each of their parameters."""
    adapters = workload.adapter_parameters / workload.layout.tensor / workload.layout.pipeline
    return adapters * 8 / links.gather(workload.layout.replicas, workload.layout.tensor)
