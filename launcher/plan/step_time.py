"""Seconds of one optimizer step, a line per cause."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from launcher.plan.collectives import all_gather_seconds, all_reduce_seconds
from launcher.plan.flops import hardware_flops_per_token
from launcher.plan.memory import local_parameters
from launcher.plan.plan import TimeLine

if TYPE_CHECKING:
    from launcher.plan.workload import Workload

MATRIX_EFFICIENCY = {"cpu": 0.5, "ampere": 0.72, "hopper": 0.62, "blackwell": 0.6}
"""Share of the dense peak large products reach, by architecture."""


def step_lines(workload: Workload) -> tuple[TimeLine, ...]:
    """Every cause with its seconds."""
    compute = _compute_seconds(workload)
    lines = {
        "matrix products and attention": compute,
        "memory-bound operations": 0.12 * compute,
        "tensor all-reduce": _tensor_seconds(workload),
        "data all-reduce": _data_seconds(workload),
    }
    layout = workload.layout
    if layout.pipeline > 1:
        busy = sum(lines.values()) - lines["data all-reduce"]
        lines["pipeline bubble"] = busy * (layout.pipeline - 1) / (layout.virtual * workload.micro_batches)
    return tuple(TimeLine(name=name, seconds=seconds) for name, seconds in lines.items() if seconds)


def _compute_seconds(workload: Workload) -> float:
    device, layout = workload.hardware.accelerator, workload.layout
    peak = device.peak_flops(workload.precision) or device.peak_flops("bf16") or device.peak_flops("fp16") or 1e12
    efficiency = MATRIX_EFFICIENCY.get(device.architecture, 0.5)
    tokens = workload.tokens * workload.micro_batches
    return tokens * hardware_flops_per_token(workload) / (layout.tensor * layout.pipeline) / (peak * efficiency)


def _tensor_seconds(workload: Workload) -> float:
    """Four all-reduces of the residual stream per layer and micro batch."""
    layout = workload.layout
    if layout.tensor == 1:
        return 0.0
    size = 2 * workload.tokens * workload.shape.hidden
    layers = math.ceil(workload.shape.layers / layout.pipeline)
    link = 0.7 * workload.hardware.link_bytes_per_second
    return 4 * layers * workload.micro_batches * all_reduce_seconds(size, layout.tensor, link)


def _data_seconds(workload: Workload) -> float:
    layout, hardware = workload.layout, workload.hardware
    if layout.replicas == 1:
        return 0.0
    inside = layout.world <= hardware.island
    link = hardware.link_bytes_per_second if inside else hardware.network_bytes_per_second
    size = 2.0 * local_parameters(workload).all
    if layout.zero_stage == 3:
        seconds = 3 * workload.micro_batches * all_gather_seconds(size, layout.shard_group, 0.7 * (link or 1e9))
    else:
        seconds = all_reduce_seconds(size, layout.replicas, 0.7 * (link or 1e9))
    return 0.3 * seconds
