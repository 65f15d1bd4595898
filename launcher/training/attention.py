"""Attention kernels under the names by which transformers' layers find them.

Shapes: B sequences, N heads, S tokens, D head width. All are causal; a mask is given only where sequences hold
several documents that must not see each other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface

from launcher.training.parallel.context import over_context

if TYPE_CHECKING:
    from launcher.recipe.schema import Training
    from launcher.training.batches import MicroBatch
    from launcher.training.parallel.context import Style
    from launcher.training.parallel.groups import Axis


def register(training: Training, *, context: Axis | None = None, style: Style = "gathered") -> str:
    """Make the recipe's kernel known to transformers; returns the name for ``attn_implementation``.

    ``context``: ranks that share each sequence, and in which ``style``.
    """
    name, kernel = f"launcher_{training.attention}", _KERNELS[training.attention]
    if context and context.group:
        name, kernel = f"{name}_{style}", over_context(kernel, context, style)
    if training.activation_checkpointing == "selective":
        name, kernel = f"{name}_recomputed", _recomputed(kernel)
    AttentionInterface.register(name, kernel)
    return name


def visible_keys(batch: MicroBatch) -> torch.Tensor | None:
    """Which keys each query sees: earlier ones of its own document, [B, 1, L, S] for the L queries computed here.

    None where attention crosses documents.
    """
    documents = batch.documents
    if documents is None:
        return None
    places = torch.arange(documents.shape[1], device=documents.device)
    mine = places if batch.queries is None else batch.queries
    is_earlier = places[None, :] <= mine[:, None]
    return ((documents[:, mine, None] == documents[:, None, :]) & is_earlier)[:, None]


def _fused(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Torch's fused attention: [B, N, S, D] in, [B, S, N, D] out."""
    is_grouped = query.shape[1] != key.shape[1]
    output = scaled_dot_product_attention(
        query, key, value, attention_mask, dropout, attention_mask is None, scale=scaling, enable_gqa=is_grouped
    )
    return output.transpose(1, 2).contiguous(), None


def _flash(*tensors: Any, **settings: Any) -> tuple[torch.Tensor, None]:
    """Fused attention, and an error where torch has no flash kernel for the inputs."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return _fused(*tensors, **settings)


def _eager(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention with its score matrix [B, N, S, S] in memory."""
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, dim=1) if groups > 1 else tensor for tensor in (key, value))
    scores = query @ key.transpose(2, 3) * (scaling or 1 / math.sqrt(query.shape[-1]))
    visible = attention_mask
    if visible is None:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    weights = scores.masked_fill(~visible, -math.inf).softmax(-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), None


def _recomputed(kernel: Any) -> Any:
    """``kernel``, run again in the backward pass from its query, key and value (arXiv:2205.05198, section 5)."""

    def attention(module: nn.Module, *tensors: Any, **settings: Any) -> Any:
        return checkpoint(kernel, module, *tensors, use_reentrant=False, **settings)

    return attention


_KERNELS = {"sdpa": _fused, "flash": _flash, "eager": _eager}
