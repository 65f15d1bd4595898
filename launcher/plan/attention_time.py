"""Seconds of scores and values in one layer: fused (FlashAttention and kin) or through memory."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from launcher.plan.products import Pair, engine_of, power
from launcher.plan.rates import TILE, rates

if TYPE_CHECKING:
    from launcher.plan.calibration import Calibration
    from launcher.plan.profile import Profile
    from launcher.plan.workload import Workload

BACKWARD_PRODUCTS = 2.5
"""Fused backward: five products against the forward pass's two, scores computed again."""
SCORE_BYTES_FORWARD = 11
"""Per score: product writes 2, softmax 2 + 2, dropout 2 + 2 and a mask of 1; the next product reads from cache."""
SCORE_BYTES_BACKWARD = 19
"""Per score: probabilities read twice, three gradients written and read (Megatron's fused softmax)."""
PARALLEL_BLOCK_ATTENTION = 0.6
"""MegaScale's sliding windows (arXiv:2402.15627, section 3.1) against full causal attention: assumed."""


def attention_seconds(workload: Workload, profile: Profile, constants: Calibration) -> Pair:
    """Causal attention of one layer, averaged over layers with and without a window."""
    if not workload.has_flash:
        return _unfused(workload, constants)
    shape = workload.shape
    operations = (
        workload.tokens * workload.seq * shape.heads * (2 * shape.head_dim + shape.rope_dim) / workload.layout.tensor
    )  # 2 operations x half of the square (causal)
    speed = profile.attention_share * workload.seq / (workload.seq + constants.attention_half_length)
    flops = rates(workload.hardware.accelerator).peak * power(workload, constants) * speed
    share = _windowed(workload)
    if workload.stack.name == "megascale":
        share *= PARALLEL_BLOCK_ATTENTION
    forward = share * operations / flops
    return Pair(forward, BACKWARD_PRODUCTS * forward / constants.attention_backward)


def _windowed(workload: Workload) -> float:
    """Operations against full causal attention: a window of w tokens costs about 2 w / seq."""
    shape = workload.shape
    windowed = shape.windowed_layers / shape.layers
    return 1 - windowed + windowed * min(1.0, 4 * shape.window / workload.seq)


def _unfused(workload: Workload, constants: Calibration) -> Pair:
    """Products of scores and values as batches of whole squares, and every score through memory."""
    shape, seq = workload.shape, workload.seq
    batches = workload.micro_batch * shape.heads / workload.layout.tensor / workload.layout.context
    engine = engine_of(workload, "16", constants)
    side, width = ceil(seq / TILE) * TILE, ceil(shape.head_dim / 64) * 64
    penalty = constants.unaligned_heads if shape.head_dim % 8 else 1.0
    per_flop = penalty * 2 * batches / (engine.flops * engine.rate.large)
    scores = per_flop * side * side * shape.head_dim * (1 + engine.rate.k0 / shape.head_dim)
    values = per_flop * side * width * seq * (1 + engine.rate.k0 / seq)
    traffic = batches * seq * seq / rates(workload.hardware.accelerator).memory
    share = 1 - shape.windowed_layers / shape.layers
    return Pair(
        share * (scores + values + SCORE_BYTES_FORWARD * traffic),
        share * (2 * scores + 2 * values + SCORE_BYTES_BACKWARD * traffic),
    )
