"""One file of pieces: safetensors, with the place of every piece in its metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from launcher.training.checkpoint.storage import write_whole
from launcher.training.pieces import Kind, Piece, Region
from launcher.training.safetensors_file import Stored, Waiting, chunks, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.training.checkpoint.storage import Written


class Readable(Protocol):
    """A tensor at rest."""

    def read(self, first: int, last: int) -> torch.Tensor:
        """Elements ``first`` up to ``last`` in row-major order, as fp32."""
        ...


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A piece at rest: elements somewhere in a file."""

    stored: Readable
    name: str
    kind: Kind
    region: Region


def write_shard(path: Path, pieces: Sequence[Piece]) -> Written:
    """Write ``pieces`` (fp32) as one safetensors file."""
    places = {_key(piece): {"name": piece.name, "kind": piece.kind, **_place(piece.region)} for piece in pieces}
    waiting = {_key(piece): _waiting(piece.tensor) for piece in pieces}
    return write_whole(path, partial(chunks, waiting, {"pieces": json.dumps(places)}))


def read_entries(path: Path) -> list[Entry]:
    """What a shard holds, from its header alone."""
    tensors, metadata = read_header(path)
    return [_entry(tensors[key], place) for key, place in json.loads(metadata["pieces"]).items()]


def _waiting(tensor: torch.Tensor) -> Waiting:
    assert tensor.dtype == torch.float32
    return Waiting(dtype=tensor.dtype, shape=tuple(tensor.shape), values=lambda: tensor)


def _entry(stored: Stored, place: dict[str, Any]) -> Entry:
    numbers = {key: tuple(place[key]) for key in ("shape", "offset", "size", "run") if key in place}
    return Entry(
        stored=stored, name=place["name"], kind=cast("Kind", place["kind"]), region=Region(**cast("Any", numbers))
    )


def _key(piece: Piece) -> str:
    region = piece.region
    run = f"+{region.run[0]}" if region.run else ""
    return f"{piece.kind}/{piece.name}@{','.join(map(str, region.offset))}{run}"


def _place(region: Region) -> dict[str, list[int]]:
    parts = {"shape": region.shape, "offset": region.offset, "size": region.size, "run": region.run}
    return {name: list(numbers) for name, numbers in parts.items() if numbers is not None}
