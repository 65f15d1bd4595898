"""Freshly drawn weights: a pure function of (seed, name, shape), whatever engine or layout holds them.

Each parameter is drawn in blocks of whole rows, every block from a generator of its own, so that a rank can draw
just the rows it holds and no rank ever needs a whole model. The rules are those of transformers'
``_init_weights``: matrices normal with ``initializer_range``, biases zero, norms one; GPT-2 divides the deviation
of its residual projections by sqrt(2 x layers) (Radford et al. 2019, section 2.3). Adapters begin as peft's do: B zero,
A uniform up to 1 / sqrt(inputs).
"""

from __future__ import annotations

import hashlib
import math
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import init

from launcher.training.lora import DOWN, UP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    distribution = _distribution(name, shape, model)
    if isinstance(distribution, float):
        return wanted.fill_(distribution)
    height = max(1, BLOCK_ELEMENTS // math.prod(shape[1:]))
    for block in range(first // height, -(-last // height)):
        top, bottom = block * height, min((block + 1) * height, shape[0])
        generator = _generator(f"{seed}/{name}/{block}", device)
        drawn = distribution(torch.empty((bottom - top, *shape[1:]), device=device), generator=generator)
        begin, end = max(first, top), min(last, bottom)
        wanted[begin - first : end - first] = drawn[begin - top : end - top]
    return wanted


def _distribution(name: str, shape: tuple[int, ...], model: Model) -> Callable[..., torch.Tensor] | float:
    """How a parameter's elements are drawn; a number where they are all the same."""
    if name.endswith(DOWN):
        bound = 1 / math.sqrt(shape[1])  # kaiming_uniform_ with a = sqrt(5), as peft and torch's Linear draw
        return partial(init.uniform_, a=-bound, b=bound)
    if name.endswith((UP, "bias")):
        return 0.0
    if len(shape) < 2:
        return 1.0
    is_residual = model.model_type == "gpt2" and name.endswith("c_proj.weight")
    divisor = math.sqrt(2 * model.num_hidden_layers) if is_residual else 1.0
    return partial(init.normal_, mean=0.0, std=model.initializer_range / divisor)


def _generator(key: str, device: torch.device) -> torch.Generator:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
    return torch.Generator(device=device).manual_seed(seed)
