"""Pieces of any cut fill pieces of any other cut."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from launcher.training.checkpoint.restore import fill, open_shelf
from launcher.training.checkpoint.shard import write_shard
from launcher.training.errors import CheckpointError
from launcher.training.pieces import Piece, Region, whole

if TYPE_CHECKING:
    from pathlib import Path


def piece_of(values: torch.Tensor, region: Region) -> Piece:
    index = tuple(slice(first, first + length) for first, length in zip(region.offset, region.size, strict=True))
    block = values[index]
    tensor = block.clone() if region.run is None else block.flatten()[slice(*region.run)].clone()
    return Piece(name="w", kind="parameter", region=region, tensor=tensor)


@st.composite
def cuts(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Region]:
    """A cut of ``shape`` into a grid of blocks, and of each block, or not, into runs."""
    axes = [borders(draw, extent) for extent in shape]
    grid = [
        Region(shape=shape, offset=tuple(a for a, _ in spans), size=tuple(b - a for a, b in spans))
        for spans in product(*axes)
    ]
    if draw(st.booleans()):
        return grid
    return [block.part(a, b) for block in grid for a, b in borders(draw, math.prod(block.size))]


def borders(draw: st.DrawFn, extent: int) -> list[tuple[int, int]]:
    """Up to three consecutive spans that make up ``extent``."""
    return list(pairwise(sorted({0, extent, *draw(st.lists(st.integers(0, extent), max_size=2))})))


@st.composite
def two_cuts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Region], list[Region]]:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    return shape, draw(cuts(shape)), draw(cuts(shape))


@given(two_cuts())
@settings(max_examples=150, deadline=None)
def test_what_was_saved_in_one_cut_is_read_in_another(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[tuple[int, ...], list[Region], list[Region]]
) -> None:
    shape, saved, wanted = case
    values = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    path = tmp_path_factory.mktemp("cut") / "shard.safetensors"
    write_shard(path, [piece_of(values, region) for region in saved])
    targets = [piece_of(torch.full(shape, -1.0), region) for region in wanted]
    fill(targets, open_shelf([path]))
    for target in targets:
        assert torch.equal(target.tensor, piece_of(values, target.region).tensor)


def test_a_shard_is_a_safetensors_file(tmp_path: Path) -> None:
    values = torch.arange(6.0).reshape(2, 3)
    write_shard(tmp_path / "a.safetensors", [piece_of(values, whole((2, 3)))])
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert torch.equal(file.get_tensor("parameter/w@0,0"), values)


def test_missing_incomplete_and_misshapen_parameters_are_all_named(tmp_path: Path) -> None:
    half = whole((4, 2)).part(0, 4)
    write_shard(tmp_path / "a", [piece_of(torch.zeros(4, 2), half)])
    shelf = open_shelf([tmp_path / "a"])
    absent = Piece(name="b", kind="parameter", region=whole((1,)), tensor=torch.zeros(1))
    other = Piece(name="w", kind="parameter", region=whole((3,)), tensor=torch.zeros(3))
    with pytest.raises(CheckpointError) as error:
        fill([piece_of(torch.zeros(4, 2), whole((4, 2))), other, absent], shelf)
    message = str(error.value)
    assert "parameter of w: 4 of 8 elements of rows 0 to 3 are there" in message
    assert "parameter of w: has shape [4, 2], the model [3]" in message
    assert "parameter of b: not in the checkpoint" in message
