"""Model FLOPs: what the mathematics needs, without recompute. One convention for every MFU this project prints.

Forward and backward are three forward passes. A product of a token with a matrix of n parameters is 2 n operations;
the input embedding is a look-up and costs none; attention counts the full square of scores, as Megatron-LM,
PaLM (appendix B) and torchtitan do: 12 layers x width x sequence per token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.families.decoder import attention_parameters, dense_layers, feed_forward_parameters
from launcher.plan.families.moe import expert_parameters, router_parameters, shared_parameters

if TYPE_CHECKING:
    from launcher.plan.workload import Shape, Workload


def matrix_parameters(shape: Shape) -> int:
    """Parameters one token is multiplied with, output projection included, input embedding not."""
    moe = 0
    if shape.is_moe:
        active = shape.experts_per_token * expert_parameters(shape) + shared_parameters(shape)
        moe = shape.moe_layers * (active + router_parameters(shape))
    dense = shape.layers * attention_parameters(shape) + dense_layers(shape) * feed_forward_parameters(shape)
    return dense + moe + shape.vocab * shape.hidden


def forward_flops_per_token(shape: Shape, seq: int) -> float:
    """2 per matrix parameter, and 4 x heads x head width x sequence per layer for scores and values."""
    return 2 * matrix_parameters(shape) + 4 * shape.layers * shape.heads * shape.head_dim * seq


def model_flops_per_token(shape: Shape, seq: int) -> float:
    """Forward and backward."""
    return 3 * forward_flops_per_token(shape, seq)


def lora_flops_per_token(shape: Shape, seq: int) -> float:
    """Forward and backward beside frozen weights, which need no gradient: two passes of their products, not three."""
    return model_flops_per_token(shape, seq) - 2 * matrix_parameters(shape)


def causal_flops_per_token(shape: Shape, seq: int) -> float:
    """Forward and backward with the half of the scores that causal attention needs."""
    return 3 * (forward_flops_per_token(shape, seq) - 2 * shape.layers * shape.heads * shape.head_dim * seq)


def recomputed_share(workload: Workload) -> float:
    """Share of the forward pass that is computed twice."""
    match workload.recompute:
        case "full":
            return 1.0
        case "selective-layer" | "partial-1/2" | "selective-op":
            return 0.5
        case "selective":
            shape = workload.shape
            scores = 4 * shape.layers * shape.heads * shape.head_dim * workload.seq
            return scores / forward_flops_per_token(shape, workload.seq)
        case _:
            return 0.0


def hardware_flops_per_token(workload: Workload) -> float:
    """What is really computed: model FLOPs and the recomputed part of the forward pass."""
    forward = forward_flops_per_token(workload.shape, workload.seq)
    needed = lora_flops_per_token if workload.lora_rank else model_flops_per_token
    return needed(workload.shape, workload.seq) + recomputed_share(workload) * forward
