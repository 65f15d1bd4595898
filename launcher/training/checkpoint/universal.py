"""DeepSpeed's universal checkpoints, for those who come with one: a folder a parameter, a file a kind.

    step_3_universal/zero/model.embed_tokens.weight/{fp32,exp_avg,exp_avg_sq,step}.pt

Made from DeepSpeed's own by ``deepspeed.checkpoint.ds_to_universal``; read from DeepSpeed 0.19.8, ``checkpoint/
ds_to_universal.py`` and ``constants.py``. Every file holds a whole tensor under ``param``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from launcher.training.checkpoint.shard import Entry
from launcher.training.checkpoint.universal_folder import parameter_folders
from launcher.training.pieces import whole

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.training.checkpoint.restore import Shelf
    from launcher.training.pieces import Kind

_FILES: dict[str, Kind] = {"fp32.pt": "parameter", "exp_avg.pt": "exp_avg", "exp_avg_sq.pt": "exp_avg_sq"}


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A tensor in a file that ``torch.save`` wrote, read when it is asked for."""

    path: Path

    @cached_property
    def _values(self) -> torch.Tensor:
        values = torch.load(self.path, map_location="cpu", mmap=True, weights_only=True)
        tensor: torch.Tensor = values["param"] if isinstance(values, dict) else values
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        return tuple(self._values.shape)

    def read(self, first: int, last: int) -> torch.Tensor:
        """Elements ``first`` up to ``last`` in row-major order, as fp32."""
        return self._values.reshape(-1)[first:last].float()


def open_universal(folder: Path) -> Shelf:
    """Every parameter and moment of a universal checkpoint."""
    shelf: Shelf = defaultdict(list)
    for name, place in parameter_folders(folder).items():
        for file, kind in _FILES.items():
            if (place / file).is_file():
                stored = Saved(path=place / file)
                shelf[name, kind].append(Entry(stored=stored, name=name, kind=kind, region=whole(stored.shape)))
    return shelf


def universal_step(folder: Path) -> int:
    """Optimizer updates done, as Adam counted them; 0 where only weights were saved."""
    counts = [place / "step.pt" for place in parameter_folders(folder).values() if (place / "step.pt").is_file()]
    return int(torch.load(counts[0], map_location="cpu", weights_only=True)) if counts else 0
