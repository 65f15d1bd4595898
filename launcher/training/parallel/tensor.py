"""Tensor parallelism: each rank holds some heads, some feed-forward columns and some rows of the vocabulary.

Columns first, then rows, so that a layer talks twice a direction (Shoeybi et al., arXiv:1909.08053, section 3).
With sequence parallelism the activations between the two are split along the sequence, and sums and copies become
scatters and gathers (Korthikanti et al., arXiv:2205.05198, section 4). The modules are cut on the meta device, before
they have memory; ``Cut`` remembers which block of the whole parameter each rank has.
Shapes: B sequences, S tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from launcher.training.parallel.collectives import copy_in, gather_in, scatter_out, sum_out
from launcher.training.pieces import Region

if TYPE_CHECKING:
    from launcher.training.parallel.groups import Axis

SEQUENCE = 1
"""The axis of S in [B, S, H]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """How tensor-parallel ranks share the work."""

    axis: Axis
    is_sequence_parallel: bool

    def enter(self, hidden: torch.Tensor) -> torch.Tensor:
        """Before a block whose ranks hold different columns: whole sequences on every rank."""
        if self.is_sequence_parallel:
            return gather_in(hidden, self.axis, dim=SEQUENCE)
        return copy_in(hidden, self.axis)

    def leave(self, partial: torch.Tensor) -> torch.Tensor:
        """After it: the ranks' sum, or each rank's part of the sequence of it."""
        if self.is_sequence_parallel:
            return scatter_out(partial, self.axis, dim=SEQUENCE)
        return sum_out(partial, self.axis)


def span(extent: int, axis: Axis) -> tuple[int, int]:
    """First index and count of this rank's part of ``extent``, as ``torch.chunk`` cuts it."""
    size = -(-extent // axis.size)
    first = min(axis.rank * size, extent)
    return first, min(size, extent - first)


def cut(shape: tuple[int, ...], dim: int, axis: Axis) -> Region:
    """This rank's block of a parameter that is divided along ``dim``."""
    first, count = span(shape[dim], axis)
    offset, size = [0] * len(shape), list(shape)
    offset[dim], size[dim] = first, count
    return Region(shape=shape, offset=tuple(offset), size=tuple(size))


class Columns(nn.Module):
    """A linear layer of which this rank computes some outputs; its input is whole."""

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, linear: Any, axis: Axis) -> None:
        super().__init__()
        self.regions = {"weight": cut(tuple(linear.weight.shape), 0, axis)}
        if linear.bias is not None:
            self.regions["bias"] = cut(tuple(linear.bias.shape), 0, axis)
        _declare(self, self.regions, linear.weight.dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, S, H] in, this rank's outputs out."""
        return functional.linear(hidden, self.weight, getattr(self, "bias", None))


class FusedColumns(nn.Module):
    """GPT-2's query, key and value in one matrix [H, 3H], kept as [H, 3, H] so that each is divided by heads."""

    weight: nn.Parameter
    bias: nn.Parameter

    def __init__(self, linear: Any, axis: Axis) -> None:
        super().__init__()
        inputs, outputs = linear.weight.shape
        self.regions = {
            "weight": cut((inputs, 3, outputs // 3), 2, axis),
            "bias": cut((3, outputs // 3), 1, axis),
        }
        _declare(self, self.regions, linear.weight.dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, S, H] in; query, key and value of this rank's heads out, one after the other."""
        return hidden @ self.weight.flatten(1) + self.bias.flatten()


class TransposedColumns(Columns):
    """The same for GPT-2's Conv1D, whose weight is [inputs, outputs]."""

    def __init__(self, linear: Any, axis: Axis) -> None:
        nn.Module.__init__(self)
        self.regions = {
            "weight": cut(tuple(linear.weight.shape), 1, axis),
            "bias": cut(tuple(linear.bias.shape), 0, axis),
        }
        _declare(self, self.regions, linear.weight.dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, S, H] in, this rank's outputs out."""
        return hidden @ self.weight + self.bias


class Rows(nn.Module):
    """A linear layer of which this rank sees some inputs; the ranks' products are summed, then the bias added."""

    weight: nn.Parameter

    def __init__(self, linear: Any, tensor: Tensor, *, is_transposed: bool = False) -> None:
        super().__init__()
        self.tensor, self.is_transposed = tensor, is_transposed
        shape = tuple(linear.weight.shape)
        self.regions = {"weight": cut(shape, 0 if is_transposed else 1, tensor.axis)}
        _declare(self, self.regions, linear.weight.dtype)
        self.bias = None if linear.bias is None else nn.Parameter(torch.empty_like(linear.bias))

    def forward(self, partial: torch.Tensor) -> torch.Tensor:
        """This rank's inputs in, [B, S, H] (or its part of the sequence) out."""
        product = partial @ self.weight if self.is_transposed else functional.linear(partial, self.weight)
        product = self.tensor.leave(product)
        return product if self.bias is None else product + self.bias


class VocabularyRows(nn.Module):
    """An embedding table of which this rank holds some rows."""

    weight: nn.Parameter

    def __init__(self, embedding: nn.Embedding, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor
        self.regions = {"weight": cut(tuple(embedding.weight.shape), 0, tensor.axis)}
        self.first, self.count = span(embedding.num_embeddings, tensor.axis)
        _declare(self, self.regions, embedding.weight.dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, S] in, [B, S, H] (or this rank's part of the sequence) out."""
        local = tokens - self.first
        is_absent = (local < 0) | (local >= self.count)
        found = functional.embedding(local.masked_fill(is_absent, 0), self.weight)
        return self.tensor.leave(found.masked_fill(is_absent[..., None], 0.0))


def _declare(module: nn.Module, regions: dict[str, Region], dtype: torch.dtype) -> None:
    for name, region in regions.items():
        setattr(module, name, nn.Parameter(torch.empty(region.size, dtype=dtype, device="meta")))
