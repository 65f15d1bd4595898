"""Peak bytes on the fullest GPU, a line per cause.

Model states after ZeRO (Rajbhandari et al., arXiv:1910.02054, section 3.1): mixed precision keeps 2 bytes of working
weight, 2 (or 4) of gradient and 12 of optimizer state (fp32 master, momentum, variance) per parameter. Activations
after Korthikanti et al., arXiv:2205.05198, table 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.plan.families.decoder import attention_parameters, dense_layers, feed_forward_parameters, norm_parameters
from launcher.plan.families.moe import expert_parameters, router_parameters, shared_parameters
from launcher.plan.plan import Line, Memory
from launcher.units import GIB

if TYPE_CHECKING:
    from launcher.plan.plan import Verdict
    from launcher.plan.workload import Workload

CONTEXT_BYTES = int(1.2 * GIB)
"""CUDA context and kernels (BLOOM chronicles: 1,271 MiB on a V100), outside the framework's own allocator."""
FRAGMENTATION = 0.04
"""Share of the allocator's bytes lost to rounding and fragments."""
TIGHT = 0.85
"""From this share of usable memory on, a plan is called tight."""


@dataclass(frozen=True, kw_only=True)
class LocalParameters:
    """Parameters one rank of the fullest stage computes with, before ZeRO."""

    dense: int
    experts: int

    @property
    def all(self) -> int:
        """Both."""
        return self.dense + self.experts


def local_parameters(workload: Workload) -> LocalParameters:
    """Parameters of one rank on the fullest pipeline stage: its layers over tensor ranks, and one embedding."""
    shape, layout = workload.shape, workload.layout
    share = math.ceil(shape.layers / layout.pipeline) / shape.layers
    attention = shape.layers * attention_parameters(shape) + dense_layers(shape) * feed_forward_parameters(shape)
    embedding = shape.vocab * shape.hidden * (1 if shape.is_tied or layout.pipeline > 1 else 2)
    moe = shape.moe_layers * shared_parameters(shape)
    sharded = (attention + moe) * share / layout.tensor + embedding / layout.tensor
    whole = (2 * shape.layers + 1) * norm_parameters(shape) * share + shape.positions * shape.hidden
    whole += shape.moe_layers * router_parameters(shape) * share
    experts = shape.moe_layers * shape.experts * expert_parameters(shape) * share / (layout.expert * layout.tensor)
    return LocalParameters(dense=round(sharded + whole), experts=round(experts))


def make_memory(workload: Workload, *, usable_bytes: int | None, processes_per_node: int) -> Memory:
    """The memory of the fullest rank, line by line, against ``usable_bytes``."""
    lines = memory_lines(workload)
    total = sum(line.bytes for line in lines)
    spread = 0.10
    return Memory(
        bytes_per_gpu=total,
        low_bytes=round(total * (1 - spread)),
        high_bytes=round(total * (1 + spread)),
        usable_bytes=usable_bytes,
        verdict=verdict(total, usable_bytes),
        worst="stage 0" if workload.layout.pipeline > 1 else "every rank",
        host_bytes_per_node=_host_bytes(workload) * processes_per_node,
        lines=lines,
    )


def verdict(total: int, usable_bytes: int | None) -> Verdict:
    """Whether ``total`` fits: tight from 85 % of usable on."""
    if usable_bytes is None:
        return "unknown"
    if total > usable_bytes:
        return "does_not_fit"
    return "tight" if total >= TIGHT * usable_bytes else "fits"


def memory_lines(workload: Workload) -> tuple[Line, ...]:
    """Every cause with its bytes, in the order a person reads them."""
    states = _state_lines(workload)
    activations = _activation_bytes(workload)
    logits = _logit_bytes(workload)
    held = sum(line.bytes for line in states) + activations + logits
    is_cpu = workload.hardware.accelerator.architecture == "cpu"
    overhead = 0 if is_cpu else round(CONTEXT_BYTES + FRAGMENTATION * held)
    return (
        *states,
        Line(name=f"activations ({workload.recompute})", bytes=activations, source="arXiv:2205.05198, table 2"),
        Line(name="logits and loss", bytes=logits),
        Line(name="context, buffers and rounding", bytes=overhead),
    )


def _state_lines(workload: Workload) -> tuple[Line, ...]:
    local, layout = local_parameters(workload), workload.layout
    stage, source = layout.zero_stage, "arXiv:1910.02054, section 3.1"
    replicas = layout.shard_group
    working = 4 if workload.precision == "fp32" or workload.stack.family in ("ddp", "fsdp") else 2
    optimizer = 8 if working == 4 else 12
    parameters = _sharded(local, working, replicas if stage == 3 else 1, layout.expert)
    gradients = _sharded(local, working, replicas if stage >= 2 else 1, layout.expert)
    moments = _sharded(local, optimizer, replicas if stage >= 1 else 1, layout.expert)
    if layout.offload_parameters:
        parameters = 0
    if layout.offload_optimizer:
        moments = 0
    gathered = _gathered_bytes(workload) if stage == 3 else 0
    lines = {"parameters": parameters, "gradients": gradients, "optimizer state": moments}
    lines |= {"gathered layers": gathered} if gathered else {}
    return tuple(Line(name=name, bytes=count, source=source) for name, count in lines.items())


def _sharded(local: LocalParameters, width: int, replicas: int, expert: int) -> int:
    return round(width * (local.dense / replicas + local.experts / max(1, replicas // expert)))


def _gathered_bytes(workload: Workload) -> int:
    """Two layers whole (the present one and the next), and the embedding."""
    shape, layout = workload.shape, workload.layout
    layer = attention_parameters(shape) + (
        shape.experts * expert_parameters(shape) // layout.expert if shape.is_moe else feed_forward_parameters(shape)
    )
    return round(2 * (2 * layer + shape.vocab * shape.hidden) / layout.tensor)


def _host_bytes(workload: Workload) -> int:
    local, layout = local_parameters(workload), workload.layout
    per_parameter = 16 * layout.offload_optimizer + 2 * layout.offload_parameters
    return round(1.5 * per_parameter * local.all / layout.shard_group)


def layer_activation_bytes(workload: Workload) -> float:
    """Saved for the backward pass by one layer and one micro batch, without recompute."""
    shape, layout = workload.shape, workload.layout
    width = 4 if workload.precision == "fp32" else 2
    tokens, h = workload.tokens, shape.hidden
    whole = layout.tensor if layout.has_sequence_parallel else 1
    ffn = shape.experts_per_token * shape.expert_ffn + shape.shared_ffn if shape.is_moe else shape.ffn
    norms = width * tokens * h * 4 / whole
    attention = width * tokens * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads) / layout.tensor
    feed_forward = width * tokens * ffn * (3 if shape.is_gated else 2) / layout.tensor
    scores = 0.0 if workload.has_flash else 5 * tokens * workload.seq * shape.heads / layout.tensor
    return norms + attention + feed_forward + scores


def _activation_bytes(workload: Workload) -> int:
    shape, layout = workload.shape, workload.layout
    width = 4 if workload.precision == "fp32" else 2
    full = layer_activation_bytes(workload)
    whole = layout.tensor if layout.has_sequence_parallel else 1
    boundary = width * workload.tokens * shape.hidden / whole
    kept = boundary if workload.recompute == "full" else full
    in_flight = min(workload.micro_batches, layout.pipeline) * (1 + _interleaving(workload))
    layers = math.ceil(shape.layers / layout.pipeline)
    return round(kept * layers * in_flight + (full if workload.recompute == "full" else 0))


def _interleaving(workload: Workload) -> float:
    layout = workload.layout
    if layout.virtual == 1 or layout.pipeline == 1:
        return 0.0
    return (layout.pipeline - 1) / (layout.pipeline * layout.virtual)


def _logit_bytes(workload: Workload) -> int:
    """Logits in working precision, in fp32, and their gradient; on the last stage."""
    return round(workload.tokens * workload.shape.vocab / workload.layout.tensor * 10)
