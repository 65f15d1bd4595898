"""Bytes the forward pass saves for the backward pass, per layer and micro batch.

Two families of counts. Eager transformers layers (our engines without ``compile``) save what autograd asks for,
counted tensor by tensor and checked against torch in ``tests/plan/test_saved_activations.py``. Fused layers
(Megatron, torch.compile) save what Korthikanti et al., arXiv:2205.05198, section 4 count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.plan.workload import Workload

LOG_SUM_EXP_BYTES = 4
"""Fused attention keeps one fp32 number per head and token instead of the scores."""
SCORE_BYTES = 5
"""Unfused scores: softmax 2, dropout mask 1, dropout output 2 (arXiv:2205.05198, equation 1: 5 a s^2 b)."""
EAGER_SCORE_BYTES = 8
"""Our eager kernel: fp32 weights before, 16-bit weights after the cast, a mask, and the masked scores."""


def width(workload: Workload) -> int:
    """Bytes of a hidden element."""
    return 4 if workload.precision == "fp32" else 2


def has_autocast(workload: Workload) -> bool:
    """Whether fp32 weights are cast per product, so that the residual stream stays fp32 (DDP in 16 bits)."""
    return workload.stack.name in ("ddp", "autocast") and workload.precision != "fp32"


def is_eager(workload: Workload) -> bool:
    """Whether layers are transformers' own, an operation a kernel."""
    return workload.stack.name in ("ddp", "fsdp", "deepspeed", "autocast") and not workload.is_compiled


def boundary_bytes(workload: Workload) -> float:
    """The input of one layer: all that full recomputation keeps."""
    residual = 4 if has_autocast(workload) else width(workload)
    return residual * workload.tokens * workload.shape.hidden / _sequence_shards(workload)


def layer_bytes(workload: Workload) -> float:
    """One average layer, nothing recomputed."""
    saved = _eager_bytes(workload) if is_eager(workload) else _fused_bytes(workload)
    return saved + score_bytes(workload)


def kept_bytes(workload: Workload) -> float:
    """One average layer under the asked recomputation."""
    match workload.recompute:
        case "full":
            return boundary_bytes(workload)
        case "selective":
            return layer_bytes(workload) - score_bytes(workload) + _attention_inputs(workload)
        case "selective-layer" | "partial-1/2":
            return 0.5 * (layer_bytes(workload) + boundary_bytes(workload))
        case "selective-op":
            return _every_other_product(workload)
        case _:
            return layer_bytes(workload)


def score_bytes(workload: Workload) -> float:
    """What attention saves beyond query, key, value and output."""
    shape, layout = workload.shape, workload.layout
    heads = workload.tokens * shape.heads / layout.tensor
    if workload.has_flash:
        return LOG_SUM_EXP_BYTES * heads
    each = EAGER_SCORE_BYTES if is_eager(workload) else SCORE_BYTES
    return each * heads * workload.seq


def _attention_inputs(workload: Workload) -> float:
    """What recomputed attention keeps otherwise than attention itself.

    Rotated queries and keys are fp32 under autocast until the kernel casts them; GPT-NeoX's uncopied output goes.
    """
    shape, layout = workload.shape, workload.layout
    if not is_eager(workload):
        return 0.0
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    rotated = 2 * (query + key) if has_autocast(workload) and not shape.positions else 0
    output = width(workload) * query if shape.has_parallel_residual else 0
    return workload.tokens * (rotated - output) / layout.tensor


def _sequence_shards(workload: Workload) -> int:
    return workload.layout.tensor if workload.layout.has_sequence_parallel else 1


def _fused_bytes(workload: Workload) -> float:
    """GPT with dropout: s b h (10 + 24 / t); gated without: inputs and outputs of norms, q, k, v, output, 3 f."""
    shape, layout, tokens = workload.shape, workload.layout, workload.tokens
    whole, size = _sequence_shards(workload), width(workload)
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    experts = shape.moe_layers / shape.layers
    ffn = (1 - experts) * shape.ffn + experts * (shape.experts_per_token * shape.expert_ffn + shape.shared_ffn)
    attention = size * tokens * (2 * query + 2 * key) / layout.tensor
    routed = experts * 2 * size * tokens * shape.experts_per_token * shape.hidden / whole
    if shape.is_gated:
        return 4 * size * tokens * shape.hidden / whole + attention + 3 * size * tokens * ffn / layout.tensor + routed
    masks = 2 * tokens * shape.hidden / whole
    return 4 * size * tokens * shape.hidden / whole + masks + attention + 2 * size * tokens * ffn / layout.tensor


def _every_other_product(workload: Workload) -> float:
    """Torchtitan's ``selective op``: the layer's input, attention's output, and every other product's output.

    Of wq, wk, wv, wo, w1, w3, w2 those are wq, wv, w1 and w2.
    """
    shape, layout = workload.shape, workload.layout
    query, value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    hidden = 2 * shape.hidden / _sequence_shards(workload)
    return width(workload) * workload.tokens * (hidden + (2 * query + value + shape.ffn) / layout.tensor)


def _eager_bytes(workload: Workload) -> float:
    """Tensor by tensor: norms, attention, feed-forward block or experts."""
    shape = workload.shape
    experts = shape.moe_layers / shape.layers
    per_token = _norm_bytes(workload) + _attention_bytes(workload) + (1 - experts) * _feed_forward_bytes(workload)
    if experts:
        per_token += experts * _expert_bytes(workload)
    return workload.tokens * per_token


def _norm_bytes(workload: Workload) -> float:
    """Both norms of a layer, with the inputs of the products that read them."""
    shape, size = workload.shape, width(workload)
    hidden = shape.hidden / _sequence_shards(workload)
    if shape.has_layer_norm:
        residuals = 1 if shape.has_parallel_residual else 2
        if has_autocast(workload):
            return residuals * 4 * hidden + 2 * (2 * hidden + 8)
        return size * (residuals + 2) * hidden + 4 * size
    if has_autocast(workload):  # residual, root, product in fp32; each of q, k, v, gate, up casts its own input
        readers = 4 if shape.is_moe else 5
        return 2 * (8 * hidden + 4) + readers * 2 * hidden
    return 2 * ((8 if size == 2 else 12) * hidden + 4)


def _attention_bytes(workload: Workload) -> float:
    shape, layout, size = workload.shape, workload.layout, width(workload)
    query, key = shape.heads * shape.head_dim / layout.tensor, shape.kv_heads * shape.head_dim / layout.tensor
    saved = size * (2 * query + 2 * key)
    if shape.has_parallel_residual:  # GPT-NeoX: values are a view of the joined projection; the output is copied
        saved += size * 3 * query
    if shape.has_qk_norm:
        saved += (4 + size) * (query + key) + 4 * (shape.heads + shape.kv_heads) / layout.tensor
    return saved


def _feed_forward_bytes(workload: Workload) -> float:
    """Gated: gate, up, activation, product. GPT-2's tanh GELU saves five intermediates, others' GELU two."""
    shape, size = workload.shape, width(workload)
    widths = 4 if shape.is_gated else 5 if shape.has_tanh_gelu else 2
    return size * widths * shape.ffn / workload.layout.tensor


def _expert_bytes(workload: Workload) -> float:
    """Router (fp32 probabilities twice, 64-bit indices), then the routed copies through joined gate and up."""
    shape = workload.shape
    chosen, size = shape.experts_per_token, 4 if has_autocast(workload) else width(workload)
    router = 8 * shape.experts + 4 + chosen * (4 + 4 + 8 * 5)
    return router + size * chosen * (2 * shape.hidden + 4 * shape.expert_ffn / workload.layout.tensor)


def tail_bytes(workload: Workload) -> float:
    """The last norm, and the tables of rotary angles every layer reads."""
    shape, size, tokens = workload.shape, width(workload), workload.tokens
    hidden = tokens * shape.hidden / _sequence_shards(workload)
    if not is_eager(workload):
        return 2 * size * hidden
    angles = 0 if shape.positions else 2 * (4 if has_autocast(workload) else size) * tokens * _rotated(workload)
    if shape.has_layer_norm:
        stored = 6 * hidden + 8 * tokens if has_autocast(workload) else 2 * size * (hidden + tokens)
    elif has_autocast(workload):
        stored = 10 * hidden + 4 * tokens
    else:
        stored = (8 if size == 2 else 12) * hidden + 4 * tokens
    return angles + stored


def _rotated(workload: Workload) -> int:
    """Width of a head that rotary positions turn: all of it, or a quarter (GPT-NeoX)."""
    shape = workload.shape
    return shape.head_dim // 4 if shape.has_parallel_residual else shape.head_dim
