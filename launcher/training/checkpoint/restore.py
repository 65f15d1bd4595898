"""Filling an engine's pieces from a checkpoint of any layout."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from launcher.training.checkpoint.shard import read_entries
from launcher.training.errors import CheckpointError
from launcher.training.pieces import whole
from launcher.training.safetensors_file import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from launcher.training.checkpoint.shard import Entry
    from launcher.training.pieces import Kind, Piece, Region

Shelf = dict[tuple[str, "Kind"], list["Entry"]]


def open_shelf(paths: Iterable[Path]) -> Shelf:
    """Every piece at rest in ``paths``, by parameter name and kind. Reads headers only."""
    shelf: Shelf = defaultdict(list)
    for path in paths:
        for entry in read_entries(path):
            shelf[entry.name, entry.kind].append(entry)
    return shelf


def fill(pieces: Iterable[Piece], shelf: Shelf) -> None:
    """Fill ``pieces`` in place, whatever pieces the checkpoint was written in.

    Raises:
        CheckpointError: a parameter is missing, incomplete, or of another shape; all of them are named.
    """
    faults = []
    for piece in pieces:
        fault = _fill(piece, shelf.get((piece.name, piece.kind), ()))
        if fault:
            faults.append(f"{piece.kind} of {piece.name}: {fault}")
    if faults:
        more = f", and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise CheckpointError(f"the checkpoint does not fit this model: {'; '.join(faults[:5])}{more}")


@torch.no_grad()
def _fill(piece: Piece, entries: Sequence[Entry]) -> str | None:
    region = piece.region
    if not entries:
        return "not in the checkpoint"
    if math.prod(entries[0].region.shape) != math.prod(region.shape):
        return f"has shape {list(entries[0].region.shape)}, the model {list(region.shape)}"
    entries = [_as_seen(entry, region.shape) for entry in entries]
    if _are_blocks(region, entries):
        filled = sum(_copy_overlap(entry, piece) for entry in entries)
        expected = math.prod(region.size)
        return None if filled == expected else f"{filled} of its {expected} elements are there"
    for band in region.bands():
        first, last = band.rows
        width = math.prod(region.shape[1:])
        values = torch.empty((last - first) * width)
        filled = sum(_copy(entry, values, first * width) for entry in entries)
        if filled != values.numel():
            return f"{filled} of {values.numel()} elements of rows {first} to {last - 1} are there"
        band.copy(values.view(-1, *region.shape[1:]), piece.tensor)
    return None


def _as_seen(entry: Entry, shape: tuple[int, ...]) -> Entry:
    """A whole tensor may be seen with other axes: GPT-2's query, key and value are one matrix or three."""
    is_whole = entry.region.is_whole and entry.region.run is None
    return replace(entry, region=whole(shape)) if is_whole else entry


def _are_blocks(region: Region, entries: Sequence[Entry]) -> bool:
    """Whether a block is to be cut out of blocks of files, and not of runs, or out of a tensor of other axes."""
    blocks = (region, *(entry.region for entry in entries))
    are_files = all(isinstance(entry.stored, Stored) for entry in entries)
    return are_files and all(block.run is None and block.shape == region.shape for block in blocks)


def _copy_overlap(entry: Entry, piece: Piece) -> int:
    """Copy what ``entry`` has of a block, and read no more than that; returns how many elements."""
    theirs, ours = entry.region, piece.region
    starts = [max(pair) for pair in zip(theirs.offset, ours.offset, strict=True)]
    ends = [min(pair) for pair in zip(_ends(theirs), _ends(ours), strict=True)]
    if any(start >= end for start, end in zip(starts, ends, strict=True)):
        return 0
    source, target = (
        tuple(slice(start - first, end - first) for start, end, first in zip(starts, ends, block.offset, strict=True))
        for block in (theirs, ours)
    )
    assert isinstance(entry.stored, Stored)
    piece.tensor.view(ours.size)[target].copy_(entry.stored.block(theirs.size, source))
    return math.prod(end - start for start, end in zip(starts, ends, strict=True))


def _ends(region: Region) -> list[int]:
    return [first + extent for first, extent in zip(region.offset, region.size, strict=True)]


def _copy(entry: Entry, band: torch.Tensor, start: int) -> int:
    """Copy what ``entry`` has of the elements from ``start`` on; returns how many. All in row-major order."""
    stop = start + band.numel()
    filled = 0
    for source, target, length in _runs(entry.region):
        first, last = max(target, start), min(target + length, stop)
        if first < last:
            band[first - start : last - start] = entry.stored.read(source + first - target, source + last - target)
            filled += last - first
    return filled


def _runs(region: Region) -> Iterable[tuple[int, int, int]]:
    """The consecutive runs a region is made of: first element within the piece, within the whole tensor, length."""
    block = _block_runs(region.shape, region.offset, region.size)
    return block if region.run is None else _clipped(block, *region.run)


def _clipped(runs: Iterable[tuple[int, int, int]], first: int, last: int) -> Iterable[tuple[int, int, int]]:
    """What of a block's ``runs`` lies between its elements ``first`` and ``last``, counted from ``first``."""
    for source, target, length in runs:
        begin, end = max(source, first), min(source + length, last)
        if begin < end:
            yield begin - first, target + begin - source, end - begin


def _block_runs(
    shape: tuple[int, ...], offset: tuple[int, ...], size: tuple[int, ...]
) -> Iterable[tuple[int, int, int]]:
    """A block's rows, joined where they touch: the last axes it spans whole are one run."""
    axis = len(shape)
    while axis > 0 and size[axis - 1] == shape[axis - 1]:
        axis -= 1
    inner = math.prod(shape[axis:])
    length = inner * (size[axis - 1] if axis else 1)
    strides = [math.prod(shape[position + 1 :]) for position in range(len(shape))]
    outer = [range(offset[position], offset[position] + size[position]) for position in range(max(axis - 1, 0))]
    last = offset[axis - 1] * strides[axis - 1] if axis else 0
    starts = [0]
    for position, indices in enumerate(outer):
        starts = [start + index * strides[position] for start in starts for index in indices]
    return [(number * length, start + last, length) for number, start in enumerate(starts)]
