"""Bytes one GPU sends in a step, by cause, and the slowest link they cross. Volumes of rings, as FORMULAS of NCCL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from launcher.plan.activations import width
from launcher.plan.plan import Traffic
from launcher.plan.sharding_time import busiest_parameters

if TYPE_CHECKING:
    from launcher.plan.workload import Workload

Link = Literal["NVLink", "PCIe", "InfiniBand", "Ethernet", "loopback"]


def traffic(workload: Workload) -> tuple[Traffic, ...]:
    """Every axis in use. Ring: an all-reduce sends 2 X (n-1)/n, a gather or a scatter X (n-1)/n."""
    layout = workload.layout
    rows = (
        ("tensor-parallel exchange", layout.tensor, _tensor_bytes(workload)),
        ("context-parallel exchange", layout.tensor * layout.context, _context_bytes(workload)),
        ("expert-parallel exchange", layout.tensor * layout.expert, _expert_bytes(workload)),
        ("pipeline transfers", layout.world, _pipeline_bytes(workload)),
        ("data-parallel exchange", layout.tensor * layout.replicas, _data_bytes(workload)),
    )
    return tuple(
        Traffic(name=name, link=_slowest_link(workload, span), bytes_per_step=round(sent))
        for name, span, sent in rows
        if sent
    )


def _slowest_link(workload: Workload, span: int) -> Link:
    hardware = workload.hardware
    if hardware.accelerator.architecture == "cpu":
        return "loopback"
    if span <= hardware.island and hardware.island > 1:
        return "NVLink"
    if span <= hardware.gpus_per_node:
        return "PCIe"
    return "InfiniBand" if hardware.is_infiniband else "Ethernet"


def _tensor_bytes(workload: Workload) -> float:
    """Two all-reduces of the residual stream per layer, forward and backward, and forward again under recompute."""
    layout = workload.layout
    passes = 3 if workload.recompute == "full" else 2
    stream = width(workload) * workload.tokens * workload.shape.hidden
    layers = workload.shape.layers / layout.pipeline * workload.micro_batches
    return passes * layers * 2 * 2 * stream * (layout.tensor - 1) / layout.tensor


def _context_bytes(workload: Workload) -> float:
    """Keys and values round the ring, and twice as much backward."""
    layout, shape = workload.layout, workload.shape
    pair = 2 * width(workload) * workload.tokens * shape.kv_heads * shape.head_dim / layout.tensor
    return 3 * pair * (layout.context - 1) * shape.layers / layout.pipeline * workload.micro_batches


def _expert_bytes(workload: Workload) -> float:
    """Each routed copy out and back, forward and backward."""
    layout, shape = workload.layout, workload.shape
    tokens = workload.tokens * workload.expert_tensor / layout.tensor
    copies = width(workload) * tokens * shape.experts_per_token * shape.hidden
    layers = shape.moe_layers / layout.pipeline * workload.micro_batches
    return 4 * copies * (layout.expert - 1) / layout.expert * layers


def _pipeline_bytes(workload: Workload) -> float:
    """Activations to the next stage, gradients to the one before, for every virtual stage."""
    layout = workload.layout
    if layout.pipeline == 1:
        return 0.0
    shards = layout.tensor if layout.has_sequence_parallel else 1
    stream = width(workload) * workload.tokens * workload.shape.hidden / shards
    return 2 * layout.virtual * workload.micro_batches * stream


def _data_bytes(workload: Workload) -> float:
    """ZeRO-3: two gathers and a scatter a micro batch; below, an all-reduce (or scatter and gather) a step."""
    layout, size = workload.layout, width(workload)
    ranks = min(layout.shard_group, layout.replicas) if layout.zero_stage == 3 else layout.replicas
    whole = size * busiest_parameters(workload).all * (ranks - 1) / ranks
    return (3 * workload.micro_batches if layout.zero_stage == 3 else 2) * whole
