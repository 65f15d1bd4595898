"""Seconds of the experts of one layer: grouped products, permutation, token exchange, host time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.products import Pair, bits_of, engine_of
from launcher.plan.rates import rates

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.links import Links
    from launcher.plan.profile import Profile
    from launcher.plan.workload import Workload

MANY_EXPERTS = 64
"""From this many experts on, host time between their kernels shows (Mixtral's and Grok's 8 hid it)."""


class ExpertSeconds(NamedTuple):
    """What experts cost, by cause."""

    products: Pair
    movement: Pair
    """Permutation, activation, casts, and host time."""
    exchange: Pair
    """All-to-all between expert ranks."""


def expert_seconds(workload: Workload, profile: Profile, links: Links, constants: Calibration) -> ExpertSeconds:
    """One layer's experts on one rank, tokens spread evenly."""
    shape, layout = workload.shape, workload.layout
    routed = workload.tokens * workload.expert_tensor / layout.tensor * shape.experts_per_token
    return ExpertSeconds(
        products=_products(workload, routed, constants),
        movement=_movement(workload, routed, profile, constants),
        exchange=_exchange(workload, routed, links, constants),
    )


def _products(workload: Workload, routed: float, constants: Calibration) -> Pair:
    shape = workload.shape
    engine = engine_of(workload, bits_of(workload.precision), constants)
    local = shape.experts / workload.layout.expert
    tokens = max(1.0, routed / local)
    start = engine.rate.start_seconds  # one launch serves all experts

    def seconds(m: float, n: float, k: float) -> float:
        return (engine.seconds(m, n, k) - start) * local / constants.expert_products

    width, hidden = shape.expert_ffn / workload.expert_tensor, shape.hidden
    joined = (2 if shape.is_gated else 1) * width
    forward = seconds(tokens, joined, hidden) + seconds(tokens, hidden, width)
    inputs = seconds(tokens, hidden, joined) + seconds(tokens, width, hidden)
    weights = seconds(joined, hidden, tokens) + seconds(hidden, width, tokens)
    return Pair(forward, inputs + (0.0 if workload.lora_rank else weights))


def _movement(workload: Workload, routed: float, profile: Profile, constants: Calibration) -> Pair:
    shape, memory = workload.shape, rates(workload.hardware.accelerator).memory
    passes = 2 * routed * shape.hidden * profile.expert_passes / 3
    width = shape.expert_ffn / workload.expert_tensor
    activation = 2 * routed * (3 if shape.is_gated else 2) * width * constants.memory_fused
    moved = (passes + activation) / memory
    cast = 4 * routed * (shape.hidden + width) * _cast(workload, constants) / memory
    host = profile.expert_seconds
    if shape.experts < MANY_EXPERTS or shape.experts_per_token == 1:
        host = min(host, constants.expert_seconds_2025)
    return Pair(moved + cast + host / 3, 2 * moved + cast + 2 * host / 3)


def _cast(workload: Workload, constants: Calibration) -> float:
    match bits_of(workload.precision):
        case "4":
            return constants.quantise_nvfp4
        case "8":
            return constants.quantise_tensor if workload.precision == "fp8" else constants.quantise_block
        case _:
            return 0.0


def _exchange(workload: Workload, routed: float, links: Links, constants: Calibration) -> Pair:
    """Dispatch and combine, each way. Between nodes a token travels once per node it has an expert on."""
    layout, shape = workload.layout, workload.shape
    if layout.expert == 1:
        return Pair(0.0, 0.0)
    inside = links.hardware.link_bytes_per_second * constants.expert_link
    span = layout.expert * layout.tensor
    if links.is_inside(span):
        once = 2 * routed * shape.hidden * (layout.expert - 1) / layout.expert / inside
    else:
        nodes = span / max(links.hardware.island, 1)
        visited = nodes * (1 - (1 - 1 / nodes) ** shape.experts_per_token) * (1 - 1 / nodes)
        sent = 2 * workload.tokens * workload.expert_tensor / layout.tensor * shape.hidden * visited
        once = (1 - constants.expert_overlap) * sent / links.network + 2 * routed * shape.hidden / inside
    return Pair(2 * once, 2 * once)
