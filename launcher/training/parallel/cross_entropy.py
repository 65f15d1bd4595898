"""Cross-entropy from hidden states, a piece of the sequence at a time, over a vocabulary that ranks may share.

fp32 logits of a whole micro batch are never kept: each piece's are made, used for its loss and gradient, and made
again in the backward pass. Shapes: T tokens, H hidden, V vocabulary rows of this rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.training.parallel.groups import Axis

PIECE_LOGITS = 1 << 26
"""Logits made at once: 256 MiB of fp32."""
IGNORED = -100


def summed_cross_entropy(
    head: Callable[[torch.Tensor], torch.Tensor],
    hidden: torch.Tensor,
    labels: torch.Tensor,
    *,
    rows: tuple[int, int],
    axis: Axis | None = None,
) -> torch.Tensor:
    """Sum over ``labels`` [T] (-100 is passed over) of the cross-entropy of ``head(hidden)`` [T, V].

    Args:
        head: From hidden states to the logits of this rank's vocabulary rows.
        hidden: [T, H].
        labels: Token ids, over the whole vocabulary.
        rows: First vocabulary row of this rank, and how many it has.
        axis: Tensor-parallel ranks among which the vocabulary is divided; None for a whole one.
    """
    height = max(1, PIECE_LOGITS // max(rows[1], 1))
    if len(labels) <= height:
        return _piece(head, hidden, labels, rows[0], axis)
    pieces = zip(hidden.split(height), labels.split(height), strict=True)
    losses = [checkpoint(_piece, head, *piece, rows[0], axis, use_reentrant=False) for piece in pieces]
    return torch.stack(losses).sum()


def _piece(
    head: Callable[[torch.Tensor], torch.Tensor],
    hidden: torch.Tensor,
    labels: torch.Tensor,
    first_row: int,
    axis: Axis | None,
) -> torch.Tensor:
    logits = head(hidden).float()
    if axis is None or axis.group is None:
        return functional.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
    return _SharedVocabulary.apply(logits, labels, first_row, axis)  # type: ignore[no-any-return, no-untyped-call]


class _SharedVocabulary(torch.autograd.Function):
    """Cross-entropy over logits divided by vocabulary: three numbers a token are exchanged, not the logits."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, first_row: int, axis: Axis) -> torch.Tensor:
        largest = logits.amax(-1)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=axis.group)
        shifted = logits - largest[:, None]
        local = labels - first_row
        is_here = (local >= 0) & (local < logits.shape[1])
        places = local.masked_fill(~is_here, 0)[:, None]
        chosen = shifted.gather(1, places).squeeze(1).masked_fill(~is_here, 0.0)
        exponentials = shifted.exp()
        sums = torch.stack((exponentials.sum(-1), chosen))
        dist.all_reduce(sums, group=axis.group)
        is_learnt = labels != IGNORED
        probabilities = exponentials / sums[0][:, None]
        ctx.save_for_backward(probabilities, places, is_here, is_learnt)
        return torch.where(is_learnt, sums[0].log() - sums[1], 0.0).sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        probabilities, places, is_here, is_learnt = ctx.saved_tensors
        result = probabilities.clone()
        result.scatter_add_(1, places, -is_here.to(result.dtype)[:, None])
        return result * (is_learnt.to(result.dtype) * gradient)[:, None], None, None, None
