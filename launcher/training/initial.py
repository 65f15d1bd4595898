"""Freshly drawn weights: a pure function of (seed, name, shape), whatever engine or layout holds them.

Each parameter is drawn in blocks of whole rows, every block from a generator of its own, so that a rank can draw
just the rows it holds and no rank ever needs a whole model. The rules are those of transformers'
``_init_weights``: matrices normal with ``initializer_range``, biases zero, norms one; GPT-2 divides the deviation
of its residual projections by sqrt(2 x layers) (Radford et al. 2019, section 2.3).
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.recipe.schema import Model, Recipe
    from launcher.training.pieces import Piece

BLOCK_ELEMENTS = 1 << 18
"""Elements drawn at once, unless one row is longer: 1 MiB of fp32."""


def draw(pieces: Iterable[Piece], recipe: Recipe) -> None:
    """Fill the parameters among ``pieces`` with their first values."""
    for piece in pieces:
        if piece.kind == "parameter":
            _fill(piece, recipe)


@torch.no_grad()
def _fill(piece: Piece, recipe: Recipe) -> None:
    model, seed, shape = recipe.model, recipe.training.seed, piece.region.shape
    for band in piece.region.bands():
        drawn = initial_rows(piece.name, shape, model=model, seed=seed, rows=band.rows, device=piece.tensor.device)
        band.copy(drawn, piece.tensor)


def initial_rows(
    name: str, shape: tuple[int, ...], *, model: Model, seed: int, rows: tuple[int, int], device: torch.device
) -> torch.Tensor:
    """Rows ``rows[0]:rows[1]`` (of the first axis) of a parameter's first value, fp32.

    Args:
        name: The parameter's name in the transformers model.
        shape: Shape of the whole parameter.
        model: The recipe's model section.
        seed: ``training.seed``.
        rows: First row and the one after the last.
        device: Where to draw; CPU and GPU generators draw different numbers.
    """
    first, last = rows
    wanted = torch.empty((last - first, *shape[1:]), dtype=torch.float32, device=device)
    deviation = _deviation(name, shape, model)
    if deviation is None:
        return wanted.fill_(0.0 if name.endswith("bias") else 1.0)
    height = max(1, BLOCK_ELEMENTS // math.prod(shape[1:]))
    for block in range(first // height, -(-last // height)):
        top, bottom = block * height, min((block + 1) * height, shape[0])
        drawn = _draw(f"{seed}/{name}/{block}", (bottom - top, *shape[1:]), deviation, device)
        begin, end = max(first, top), min(last, bottom)
        wanted[begin - first : end - first] = drawn[begin - top : end - top]
    return wanted


def _deviation(name: str, shape: tuple[int, ...], model: Model) -> float | None:
    """Standard deviation of a parameter's normal distribution; None for biases and norms."""
    if len(shape) < 2 or name.endswith("bias"):
        return None
    if model.model_type == "gpt2" and name.endswith("c_proj.weight"):
        return model.initializer_range / math.sqrt(2 * model.num_hidden_layers)
    return model.initializer_range


def _draw(key: str, shape: tuple[int, ...], deviation: float, device: torch.device) -> torch.Tensor:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.empty(shape, dtype=torch.float32, device=device).normal_(0.0, deviation, generator=generator)
