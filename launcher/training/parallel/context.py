"""Context parallelism: each rank holds part of every sequence.

Gathered: every rank gathers all keys and values and computes its own queries (Llama 3, arXiv:2407.21783, section
3.3.2). A rank holds one early and one late slice of the sequence, so that all have equally many keys to look at.
Ulysses: ranks exchange, so that each has whole sequences of some heads (arXiv:2309.14509).
Shapes: B sequences, N heads, S tokens of a whole sequence, L of this rank, D head width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from launcher.training.parallel.collectives import exchange, gather_in

if TYPE_CHECKING:
    from torch import nn

    from launcher.training.parallel.groups import Axis

Style = Literal["gathered", "ulysses"]


def slices(length: int, *, size: int, rank: int, style: Style) -> torch.Tensor:
    """Which tokens of a sequence of ``length`` the context rank ``rank`` of ``size`` holds, in its own order [L]."""
    if style == "ulysses":
        return torch.arange(length).chunk(size)[rank]
    parts = torch.arange(length).chunk(2 * size)
    return torch.cat((parts[rank], parts[2 * size - 1 - rank]))


def over_context(kernel: Any, axis: Axis, style: Style) -> Any:
    """``kernel`` over sequences that are divided among ``axis``."""
    return _ulysses(kernel, axis) if style == "ulysses" else _gathered(kernel, axis)


def _gathered(kernel: Any, axis: Axis) -> Any:
    def attention(
        module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **settings: Any
    ) -> tuple[torch.Tensor, None]:
        length = query.shape[2] * axis.size
        natural = torch.argsort(_gathered_order(length, axis.size)).to(query.device)
        key, value = (gather_in(tensor, axis, dim=2).index_select(2, natural) for tensor in (key, value))
        if mask is not None:
            return kernel(module, query, key, value, mask, **settings)  # type: ignore[no-any-return]
        output = [_causal(part, key, value, end, settings) for part, end in _halves(query, length, axis)]
        return torch.cat(output, 2).transpose(1, 2).contiguous(), None

    return attention


def _gathered_order(length: int, size: int) -> torch.Tensor:
    """Position of each token of what ``gather_in`` joins, rank after rank."""
    return torch.cat([slices(length, size=size, rank=rank, style="gathered") for rank in range(size)])


def _halves(query: torch.Tensor, length: int, axis: Axis) -> list[tuple[torch.Tensor, int]]:
    """The early and the late slice of this rank's queries, with where each ends in the sequence."""
    early, late = query.chunk(2, 2)
    step = length // (2 * axis.size)
    return [(early, (axis.rank + 1) * step), (late, (2 * axis.size - axis.rank) * step)]


def _causal(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, end: int, settings: dict[str, Any]
) -> torch.Tensor:
    """Queries that end at token ``end``, over the keys up to there."""
    key, value = key[:, :, :end], value[:, :, :end]
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
    bias = causal_lower_right(query.shape[2], end)
    dropout, scale = settings.get("dropout", 0.0), settings.get("scaling")
    return scaled_dot_product_attention(query, key, value, bias, dropout, scale=scale)


def _ulysses(kernel: Any, axis: Axis) -> Any:
    def attention(
        module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **settings: Any
    ) -> tuple[torch.Tensor, None]:
        if key.shape[1] % axis.size:  # fewer key/value heads than ranks: as many as queries
            groups = query.shape[1] // key.shape[1]
            key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
        query, key, value = (_share_heads(tensor, axis) for tensor in (query, key, value))
        output, _ = kernel(module, query, key, value, mask, **settings)
        return _share_sequence(output, axis), None

    return attention


def _share_heads(tensor: torch.Tensor, axis: Axis) -> torch.Tensor:
    """[B, N, L, D] -> [B, N / ranks, S, D]."""
    parts = torch.stack(tensor.chunk(axis.size, 1))
    return torch.cat(list(_swap(parts, axis)), 2)


def _share_sequence(tensor: torch.Tensor, axis: Axis) -> torch.Tensor:
    """[B, S, N / ranks, D] -> [B, L, N, D]."""
    parts = torch.stack(tensor.chunk(axis.size, 1))
    return torch.cat(list(_swap(parts, axis)), 2)


def _swap(parts: torch.Tensor, axis: Axis) -> torch.Tensor:
    """Part r goes to rank r."""
    ones = [1] * axis.size
    return exchange(parts, axis, sent=ones, received=ones)
