"""Seconds of one optimizer step, a line per cause, on the slowest rank."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.layer_time import head_seconds, layer_seconds
from launcher.plan.links import links_of
from launcher.plan.pipeline_time import flow, stages
from launcher.plan.plan import TimeLine
from launcher.plan.profile import profile
from launcher.plan.sharding_time import exchange_seconds, optimizer_seconds

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.layer_time import LayerSeconds
    from launcher.plan.profile import Profile
    from launcher.plan.workload import Workload


class Step(NamedTuple):
    """One step, before it is told as lines."""

    seconds: float
    layer: LayerSeconds
    layers: float
    """Layers of the slowest stage."""
    head: float
    """Of the slowest stage, per micro batch; 0 where the slowest is not the last."""
    bubble: float
    transfers: float
    exchange: float
    optimizer: float
    stragglers: float
    fixed: float
    older: float
    """What an older release, or a slower relative of Megatron, adds."""


def step(workload: Workload, constants: Calibration) -> Step:
    """The step of ``workload``."""
    family = workload.hardware.accelerator.architecture
    known = profile(
        workload.stack,
        family,
        constants,
        is_compiled=workload.is_compiled,
        is_async=workload.overlaps_tensor,
        is_gated=workload.shape.is_gated,
    )
    links = links_of(workload.hardware, constants)
    layer = layer_seconds(workload, known, links, constants)
    head = head_seconds(workload, known, constants)
    extra = workload.shape.prediction_layers
    moving = flow(workload, known, links, layer=layer.total, head=head + extra * (head + layer.total))
    busy = moving.busy + moving.bubble + moving.transfers
    stragglers = busy * known.stragglers * log2(_waiting_ranks(workload, known))
    exchange = exchange_seconds(workload, known, links, constants, layer, moving.busy)
    optimizer = optimizer_seconds(workload, constants)
    fixed = 0.0 if family == "cpu" else known.fixed_seconds
    before = busy + stragglers + exchange + optimizer + fixed
    older = before * (_slower(workload, known, constants) - 1)
    held, last = stages(workload, known), moving.slowest
    is_last = workload.layout.pipeline == 1 or last > held.middle * layer.total
    return Step(
        seconds=before + older,
        layer=layer,
        layers=(held.last + extra) if is_last else held.middle,
        head=head * (1 + extra) if is_last else 0.0,
        bubble=moving.bubble,
        transfers=moving.transfers,
        exchange=exchange,
        optimizer=optimizer,
        stragglers=stragglers,
        fixed=fixed,
        older=older,
    )


def step_lines(workload: Workload, taken: Step) -> tuple[TimeLine, ...]:
    """Every cause with its seconds; they add up to the step ``taken``."""
    layer, times = taken.layer, taken.layers * workload.micro_batches
    lines = {
        "matrix products": times * sum(layer.products),
        "attention": times * sum(layer.attention),
        "memory-bound operations": times * sum(layer.memory),
        f"casting to {workload.precision}": times * sum(layer.cast),
        f"recompute ({workload.recompute})": times * layer.recompute,
        "tensor-parallel exchange": times * sum(layer.tensor),
        "context-parallel exchange": times * sum(layer.context),
        "expert-parallel exchange": times * sum(layer.exchange),
        "logits and loss": workload.micro_batches * taken.head,
        "pipeline bubble": taken.bubble,
        "pipeline transfers": taken.transfers,
        _exchange_name(workload): taken.exchange,
        "optimizer on the host" if workload.layout.offload_optimizer else "optimizer": taken.optimizer,
        "waiting for the slowest rank": taken.stragglers,
        "host": taken.fixed,
        "older software": taken.older,
    }
    return tuple(TimeLine(name=name, seconds=seconds) for name, seconds in lines.items() if seconds > 0)


def _exchange_name(workload: Workload) -> str:
    return "parameter gathering" if workload.layout.zero_stage == 3 else "data-parallel exchange"


def _waiting_ranks(workload: Workload, known: Profile) -> float:
    """Ranks that wait for the slowest once a step: replicas; under FSDP every layer, nodes."""
    layout = workload.layout
    return layout.replicas if "megatron" in known.kind else max(1.0, layout.world / 8)


def _slower(workload: Workload, known: Profile, constants: Calibration) -> float:
    """Factor of older releases, and of Megatron-DeepSpeed."""
    if workload.stack.name != "megatron-deepspeed":
        return known.release_factor
    fp16 = constants.megatron_deepspeed_fp16 if workload.precision == "fp16" else 1.0
    return constants.megatron_deepspeed * fp16
