"""Seconds of one average layer and of the head, on one rank and for one micro batch, by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.attention_time import attention_seconds
from launcher.plan.expert_time import expert_seconds
from launcher.plan.products import (
    ZERO,
    Pair,
    Product,
    attention_products,
    bits_of,
    engine_of,
    feed_forward_products,
    pair,
    quantise_seconds,
)
from launcher.plan.rates import rates

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.links import Links
    from launcher.plan.profile import Profile
    from launcher.plan.workload import Workload

CONTEXT_OVERLAP = 0.5
"""Share of a layer's attention behind which its ring exchange can hide: assumed."""
KERNELS_PER_LAYER = {True: 20, False: 45}
"""Kernels of one layer's forward pass, fused or eager: counted in a profile of a Llama layer."""
LAUNCH_SECONDS = 4.5e-6
"""Host time of one kernel launch: a layer is never faster than its launches."""


class LayerSeconds(NamedTuple):
    """One layer, by cause; ``recompute`` is spent in the backward pass."""

    products: Pair
    attention: Pair
    memory: Pair
    cast: Pair
    tensor: Pair
    context: Pair
    exchange: Pair
    recompute: float

    @property
    def forward(self) -> float:
        """All causes."""
        return sum(part.forward for part in self[:-1])

    @property
    def backward(self) -> float:
        """All causes, recompute among them."""
        return sum(part.backward for part in self[:-1]) + self.recompute

    @property
    def total(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward


def layer_seconds(workload: Workload, profile: Profile, links: Links, constants: Calibration) -> LayerSeconds:
    """The average of all layers, dense and with experts."""
    shape, memory = workload.shape, rates(workload.hardware.accelerator).memory
    moe = shape.moe_layers / shape.layers
    products, cast = _dense(workload, 1 - moe, constants, memory)
    moved, exchange = _memory_bound(workload, profile, memory), ZERO
    if moe:
        experts = expert_seconds(workload, profile, links, constants)
        products = _sum(products, _scaled(experts.products, moe))
        moved = _sum(moved, _scaled(experts.movement, moe))
        exchange = _scaled(experts.exchange, moe)
    attention = attention_seconds(workload, profile, constants)
    tensor = _tensor(workload, profile, links)
    context = _context(workload, attention, links, constants)
    moved = _at_least_launches(workload, moved, products.forward + attention.forward + cast.forward)
    seconds = LayerSeconds(products, attention, moved, cast, tensor, context, exchange, 0.0)
    return seconds._replace(recompute=_recompute(workload, seconds))


def head_seconds(workload: Workload, profile: Profile, constants: Calibration) -> float:
    """Output projection, loss and their gradients, forward and backward; in 16 bits under any 8-bit recipe."""
    tokens, vocab = workload.tokens, workload.shape.vocab / workload.layout.tensor
    engine = engine_of(workload, "32" if workload.precision == "fp32" else "16", constants)
    both = pair(engine, [Product(tokens, vocab, workload.shape.hidden)], trains_weights=not workload.lora_rank)
    traffic = tokens * vocab * profile.loss_bytes / rates(workload.hardware.accelerator).memory
    return both.forward + both.backward + traffic


def _dense(workload: Workload, share: float, constants: Calibration, memory: float) -> tuple[Pair, Pair]:
    """Products and casts of attention, of the dense feed-forward block (in ``share`` of layers), of a shared expert."""
    shape, trains = workload.shape, not workload.lora_rank
    engine = engine_of(workload, bits_of(workload.precision), constants)
    parts = [(attention_products(workload), 1.0)]
    if share:
        parts.append((feed_forward_products(workload, shape.ffn), share))
    if shape.shared_ffn:
        parts.append((feed_forward_products(workload, shape.shared_ffn), 1 - share))
    seconds, casts = ZERO, ZERO
    for products, weight in parts:
        seconds = _sum(seconds, _scaled(pair(engine, products, trains_weights=trains), weight))
        casts = _sum(casts, _scaled(quantise_seconds(workload, products, constants, memory), weight))
    return seconds, casts


def _memory_bound(workload: Workload, profile: Profile, memory: float) -> Pair:
    """Norms, residuals (10 and 14 widths), rotations (2 of queries and keys), activation (2 or 3, 3 or 5 widths)."""
    shape, layout = workload.shape, workload.layout
    hidden = shape.hidden / (layout.tensor if layout.has_sequence_parallel else 1)
    rotated = 2 * (shape.heads + shape.kv_heads) * shape.head_dim / layout.tensor
    ffn = 0 if shape.is_moe else shape.ffn / layout.tensor
    bytes_of = profile.memory_traffic * (4 if workload.precision == "fp32" else 2) * workload.tokens / memory
    forward = 10 * hidden + rotated + (3 if shape.is_gated else 2) * ffn
    backward = 14 * hidden + rotated + (5 if shape.is_gated else 3) * ffn
    return Pair(bytes_of * forward, bytes_of * backward)


def _at_least_launches(workload: Workload, moved: Pair, others: float) -> Pair:
    """Small layers wait for the host: their forward pass takes no less than its launches, the backward pass twice."""
    if workload.hardware.accelerator.architecture == "cpu":
        return moved
    floor = KERNELS_PER_LAYER[workload.is_compiled or workload.stack.family == "megatron"] * LAUNCH_SECONDS
    waited = max(0.0, floor - others - moved.forward)
    return Pair(moved.forward + waited, moved.backward + 2 * waited)


def _tensor(workload: Workload, profile: Profile, links: Links) -> Pair:
    """Two all-reduces (or gather and scatter) of the residual stream each way; one in MegaScale's parallel block."""
    tensor = workload.layout.tensor
    if tensor == 1:
        return ZERO
    size = (4 if workload.precision == "fp32" else 2) * workload.tokens * workload.shape.hidden
    splits = workload.layout.has_sequence_parallel or workload.overlaps_tensor
    hidden = Pair(profile.tensor_overlap if splits else 0.0, profile.tensor_overlap_backward)
    times = 1 if workload.stack.name == "megascale" else 2
    once = 2 * (tensor - 1) / tensor * size / links.tensor(size, tensor)
    return Pair(times * once * (1 - hidden.forward), times * once * (1 - hidden.backward))


def _context(workload: Workload, attention: Pair, links: Links, constants: Calibration) -> Pair:
    """The ring of keys and values, partly behind attention, and the merging of partial outputs."""
    layout, shape = workload.layout, workload.shape
    if layout.context == 1:
        return ZERO
    steps = layout.context - 1
    sent = 4 * workload.tokens * shape.kv_heads * shape.head_dim / layout.tensor * steps
    seconds = sent / links.ring(layout.tensor * layout.context)
    width = shape.heads * shape.head_dim / layout.tensor
    merged = 6 * workload.tokens * width * steps / rates(workload.hardware.accelerator).memory
    fixed = constants.context_seconds_per_step * steps
    return Pair(
        max(0.0, seconds - CONTEXT_OVERLAP * attention.forward) + fixed + merged,
        max(0.0, 2 * seconds - CONTEXT_OVERLAP * attention.backward) + 2 * fixed + merged,
    )


def _recompute(workload: Workload, seconds: LayerSeconds) -> float:
    match workload.recompute:
        case "full":
            return seconds.forward
        case "selective-layer" | "partial-1/2":
            return 0.5 * seconds.forward
        case "selective-op":  # every other product, and most of what lies between
            return 0.5 * (seconds.products.forward + seconds.cast.forward) + 0.6 * seconds.memory.forward
        case "selective":
            return seconds.attention.forward
        case _:
            return 0.0


def _sum(left: Pair, right: Pair) -> Pair:
    return Pair(left.forward + right.forward, left.backward + right.backward)


def _scaled(part: Pair, factor: float) -> Pair:
    return Pair(part.forward * factor, part.backward * factor)
