"""Pieces: what a rank holds of the training state, by parameter name, global shape and position.

One form for every engine and layout: a *block* of the whole tensor (tensor-parallel parts, FSDP's shards), or a *run*
of a block's elements in row-major order (ZeRO's flat partitions). Any layout can be filled from pieces of any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

Kind = Literal["parameter", "exp_avg", "exp_avg_sq"]
"""``parameter`` is the fp32 master copy, from which every lower-precision copy is cast."""


BAND_ELEMENTS = 1 << 24
"""Elements of a whole tensor that are in memory at once while a part of it is filled: 64 MiB of fp32."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """Consecutive whole rows of a tensor, and what of them belongs to a region."""

    rows: tuple[int, int]
    """First row and the one after the last."""
    columns: tuple[slice, ...]
    """Of the other axes."""
    inside: slice
    """Of the elements so cut out, in row-major order."""
    target: slice
    """Where they go among the region's elements."""

    def copy(self, values: torch.Tensor, piece: torch.Tensor) -> None:
        """Put what belongs to the region out of ``values`` (the whole rows) into its ``piece``."""
        piece.view(-1)[self.target] = values[(slice(None), *self.columns)].reshape(-1)[self.inside]


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

    def bands(self) -> Iterator[Band]:
        """The region in portions of whole rows of the tensor, none much larger than ``BAND_ELEMENTS``."""
        height = max(1, BAND_ELEMENTS // math.prod(self.shape[1:]))
        width = math.prod(self.size[1:])
        first, last = self.run or (0, math.prod(self.size))
        columns = tuple(slice(begin, begin + extent) for begin, extent in zip(self.offset, self.size, strict=True))[1:]
        for top in range(first // width, -(-last // width), height):
            bottom = min(top + height, -(-last // width))
            begin, end = max(first, top * width), min(last, bottom * width)
            yield Band(
                rows=(self.offset[0] + top, self.offset[0] + bottom),
                columns=columns,
                inside=slice(begin - top * width, end - top * width),
                target=slice(begin - first, end - first),
            )


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
    is_trained: bool = True
    """Whether training changes it; a frozen one is in no checkpoint and may have a lower precision."""


def whole(shape: tuple[int, ...]) -> Region:
    """A tensor that is not divided."""
    return Region(shape=shape, offset=(0,) * len(shape), size=shape)
