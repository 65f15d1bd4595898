"""The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes.

Written here rather than by the safetensors library so that bytes go out front to back, are digested on their way, and
never have to be in memory all at once; read here so that a rank reads just the elements it holds.
(https://github.com/huggingface/safetensors, "Format")
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNMENT = 8
_CHUNK_ELEMENTS = 1 << 22
"""Elements converted and written at once."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A tensor in a file."""

    path: Path
    start: int
    """First byte in the file."""
    dtype: torch.dtype
    shape: tuple[int, ...]

    def read(self, first: int, last: int) -> torch.Tensor:
        """Elements ``first`` up to ``last`` in row-major order, as fp32."""
        width = self.dtype.itemsize
        values = torch.empty((last - first) * width, dtype=torch.uint8)
        with self.path.open("rb") as file:
            file.seek(self.start + width * first)
            file.readinto(cast("bytearray", values.numpy()))
        return values.view(self.dtype).float()

    def block(self, shape: tuple[int, ...], box: tuple[slice, ...]) -> torch.Tensor:
        """A block of the tensor, seen as ``shape``, in the file's own dtype: of the file, its pages alone are read."""
        kind = (
            f"i{self.dtype.itemsize}"  # numpy has no bf16; and writable copies of pages, since torch has no constants
        )
        values = np.memmap(self.path, dtype=kind, mode="c", offset=self.start, shape=shape)
        return torch.from_numpy(values[box]).view(self.dtype)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A tensor to be written; its values are made when their turn comes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    values: Callable[[], torch.Tensor]

    @property
    def bytes(self) -> int:
        """Size in the file."""
        return self.dtype.itemsize * math.prod(self.shape)


def read_header(path: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of a file by name, and its metadata. Reads the header alone; integer tensors are passed over."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
    metadata = header.pop("__metadata__", {})
    tensors = {
        name: Stored(
            path=path,
            start=8 + length + entry["data_offsets"][0],
            dtype=DTYPES[entry["dtype"]],
            shape=tuple(entry["shape"]),
        )
        for name, entry in header.items()
        if entry["dtype"] in DTYPES
    }
    return tensors, metadata


def chunks(tensors: Mapping[str, Waiting], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The file's bytes, a few MiB at a time."""
    yield _header(tensors, metadata)
    for tensor in tensors.values():
        for part in cast("Sequence[torch.Tensor]", tensor.values().detach().reshape(-1).split(_CHUNK_ELEMENTS)):
            held = torch.empty(part.numel(), dtype=tensor.dtype).copy_(part)
            yield held.view(torch.uint8).numpy().data


def _header(tensors: Mapping[str, Waiting], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    position = 0
    for name, tensor in tensors.items():
        end = position + tensor.bytes
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
