"""Pieces: what a rank holds of the training state, by parameter name, global shape and position.

One form for every engine and layout: a *block* of the whole tensor (tensor-parallel parts, FSDP's shards), or a *run*
of a block's elements in row-major order (ZeRO's flat partitions). Any layout can be filled from pieces of any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

Kind = Literal["parameter", "exp_avg", "exp_avg_sq"]
"""``parameter`` is the fp32 master copy, from which every lower-precision copy is cast."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """Which elements of a whole tensor a piece covers: a block, or a run of a block's elements."""

    shape: tuple[int, ...]
    """Of the whole tensor."""
    offset: tuple[int, ...]
    """The block's first index on each axis."""
    size: tuple[int, ...]
    """The block's extent on each axis."""
    run: tuple[int, int] | None = None
    """First element and the one after the last, in the block's own row-major order; None for all of it."""

    @property
    def is_whole(self) -> bool:
        """Whether the block is the whole tensor."""
        return self.size == self.shape

    def part(self, first: int, last: int) -> Region:
        """The run of this block's elements from ``first`` up to ``last``."""
        return replace(self, run=(first, last))

    def band(self) -> tuple[tuple[int, int], Callable[[torch.Tensor], torch.Tensor]]:
        """The whole rows that contain this region (first, one after the last), and how to cut it out of them."""
        inside = tuple(slice(first, first + length) for first, length in zip(self.offset, self.size, strict=True))[1:]
        if self.run is None:
            return (self.offset[0], self.offset[0] + self.size[0]), lambda values: values[(slice(None), *inside)]
        width = math.prod(self.size[1:])
        first, last = self.run[0] // width, -(-self.run[1] // width)
        begin, end = self.run[0] - first * width, self.run[1] - first * width
        rows = self.offset[0] + first, self.offset[0] + last
        return rows, lambda values: values[(slice(None), *inside)].reshape(-1)[begin:end]


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A part of one tensor of the training state, as a view onto the engine's own memory."""

    name: str
    """The parameter's name in the transformers model."""
    kind: Kind
    region: Region
    tensor: torch.Tensor
    """The elements; shaped as the block, or flat for a run. Filled in place on load."""
    is_written: bool = True
    """Whether this rank writes it; of several ranks that hold the same elements, one does."""


def whole(shape: tuple[int, ...]) -> Region:
    """A tensor that is not divided."""
    return Region(shape=shape, offset=(0,) * len(shape), size=shape)
