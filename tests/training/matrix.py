"""Every engine with every axis and pair of axes: the layouts of the equality matrix, and why some are refused."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from launcher.plan.planner import make_plan
from tests.training.layouts import laid_out

if TYPE_CHECKING:
    from launcher.recipe.schema import Recipe

AXES = ("data", "tensor", "pipeline", "context", "expert")
COMBINATIONS: tuple[tuple[str, ...], ...] = (*((axis,) for axis in AXES), *combinations(AXES, 2))
"""One axis above 1, or two; expert ranks are taken out of the data-parallel ones."""


def cell(engine: str, axes: tuple[str, ...], **training: Any) -> Recipe:
    """A tiny recipe with ``axes`` at 2, and what its engine can shard sharded."""
    ways = {f"{axis}_parallel_size": 2 for axis in axes if axis != "data"}
    data = 2 ** len({"data", "expert"} & set(axes))
    ranks = data * 2 ** len({"tensor", "pipeline", "context"} & set(axes))
    layout = {**ways, "zero_stage": _zero_stage(engine, axes), "sequence_parallel": "tensor" in axes}
    return laid_out((ranks, layout), engine, kind=kind(axes), training=training)


def kind(axes: tuple[str, ...]) -> str:
    """The model of a combination: one with experts where they are divided."""
    return "mixtral" if "expert" in axes else "llama"


def refusal(recipe: Recipe) -> str | None:
    """Why the plan refuses ``recipe``; None when it accepts."""
    return "; ".join(finding.message for finding in make_plan(recipe).errors) or None


def _zero_stage(engine: str, axes: tuple[str, ...]) -> int:
    """The highest stage that the engine has for such a layout; 0 where nobody holds the same parameters."""
    if engine == "ddp" or not {"data", "context", "expert"} & set(axes):
        return 0
    if engine == "fsdp":
        return 3
    return 1 if "pipeline" in axes else 2 if "tensor" in axes else 3
