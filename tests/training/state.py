"""What a run's last checkpoint holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from launcher.training.checkpoint.manifest import newest
from launcher.training.checkpoint.restore import fill, open_shelf
from launcher.training.pieces import Piece, whole

if TYPE_CHECKING:
    from launcher.training.checkpoint.restore import Shelf
    from tests.training.runs import Finished


def digests(run: Finished) -> list[str]:
    """SHA-256 of its files."""
    found = newest(run.output / "checkpoints")
    assert found is not None
    return [file.sha256 for file in found[1].files]


def parameters(run: Finished) -> dict[str, torch.Tensor]:
    """Every parameter, whole, in the shape it was written in."""
    found = newest(run.output / "checkpoints")
    assert found is not None
    shelf = open_shelf(found[0] / file.name for file in found[1].files)
    shapes = {name: entries[0].region.shape for (name, kind), entries in shelf.items() if kind == "parameter"}
    return {name: _read(shelf, name, shape) for name, shape in shapes.items()}


def _read(shelf: Shelf, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    values = torch.empty(shape)
    fill([Piece(name=name, kind="parameter", region=whole(shape), tensor=values)], shelf)
    return values
