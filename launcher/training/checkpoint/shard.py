"""One file of pieces: safetensors, with the place of every piece in its header.

The format (8 bytes of header length, a JSON header, the tensors' bytes) is that of the safetensors library, whose
readers take these files; writing it here lets bytes go out front to back and be digested on their way.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from launcher.training.checkpoint.storage import write_whole
from launcher.training.pieces import Kind, Piece, Region

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from launcher.training.checkpoint.storage import Written

_ALIGNMENT = 8
_CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A piece at rest: fp32 elements somewhere in a file."""

    path: Path
    start: int
    """First byte in the file."""
    name: str
    kind: Kind
    region: Region

    def read(self, first: int, last: int) -> torch.Tensor:
        """Elements ``first`` to ``last`` (row-major within the piece), fp32."""
        values = torch.empty(last - first, dtype=torch.float32)
        with self.path.open("rb") as file:
            file.seek(self.start + 4 * first)
            file.readinto(cast("bytearray", values.numpy().view(np.uint8)))
        return values


def write_shard(path: Path, pieces: Sequence[Piece]) -> Written:
    """Write ``pieces`` (fp32) as one safetensors file."""
    header = _header(pieces)
    return write_whole(path, lambda: _chunks(header, pieces))


def read_entries(path: Path) -> list[Entry]:
    """What a shard holds, from its header alone."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    places = json.loads(header.pop("__metadata__")["pieces"])
    return [_entry(path, 8 + length + header[key]["data_offsets"][0], place) for key, place in places.items()]


def _entry(path: Path, start: int, place: dict[str, object]) -> Entry:
    lists = cast("dict[str, list[int]]", place)
    numbers: dict[str, Any] = {key: tuple(lists[key]) for key in ("shape", "offset", "size", "run") if key in place}
    return Entry(
        path=path,
        start=start,
        name=cast("str", place["name"]),
        kind=cast("Kind", place["kind"]),
        region=Region(**numbers),
    )


def _header(pieces: Sequence[Piece]) -> bytes:
    tensors: dict[str, object] = {}
    places: dict[str, dict[str, object]] = {}
    position = 0
    for piece in pieces:
        assert piece.tensor.dtype == torch.float32
        key, end = _key(piece), position + 4 * piece.tensor.numel()
        tensors[key] = {"dtype": "F32", "shape": list(piece.tensor.shape), "data_offsets": [position, end]}
        places[key] = {"name": piece.name, "kind": piece.kind, **_place(piece.region)}
        position = end
    text = json.dumps({"__metadata__": {"pieces": json.dumps(places)}, **tensors}).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def _key(piece: Piece) -> str:
    region = piece.region
    run = f"+{region.run[0]}" if region.run else ""
    return f"{piece.kind}/{piece.name}@{','.join(map(str, region.offset))}{run}"


def _place(region: Region) -> dict[str, list[int]]:
    parts = {"shape": region.shape, "offset": region.offset, "size": region.size, "run": region.run}
    return {name: list(numbers) for name, numbers in parts.items() if numbers is not None}


def _chunks(header: bytes, pieces: Sequence[Piece]) -> Iterator[bytes | memoryview]:
    yield header
    for piece in pieces:
        for part in piece.tensor.detach().reshape(-1).split(_CHUNK_ELEMENTS):
            yield memoryview(part.cpu().numpy()).cast("B")
