"""The equality matrix: every engine x axes and their pairs x recomputation x precision, against one process.

``pytest -m slow tests/training/test_matrix.py -s`` runs what the plan accepts and prints how close each came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.training.layouts import ALONE, laid_out
from tests.training.matrix import COMBINATIONS, cell, kind, refusal
from tests.training.runs import train_many
from tests.training.state import parameters

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from tests.training.runs import Finished

ENGINES = ("ddp", "fsdp", "deepspeed")
LOSS_TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2}
"""Largest relative difference from one process in fp32, at any of 20 steps."""
PARAMETER_TOLERANCE = {"fp32": 1e-4, "bf16": 1e-1}
"""Largest relative difference (L2 norm) of any parameter after them."""
ACCEPTED = {
    "ddp": {("data",)},
    "fsdp": set(COMBINATIONS),
    "deepspeed": {axes for axes in COMBINATIONS if "expert" not in axes} - {("pipeline", "context")},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_plan_refuses_just_what_an_engine_cannot_do_and_says_which_key(engine: str) -> None:
    reasons = {axes: refusal(cell(engine, axes)) for axes in COMBINATIONS}
    assert {axes for axes, reason in reasons.items() if reason is None} == ACCEPTED[engine]
    for axes, reason in reasons.items():
        if reason:
            assert f"engine {engine}" in reason
            assert any(f"{axis}_parallel_size=2" in reason for axis in axes), reason


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_layout_of_an_engine_learns_what_one_process_learns(
    engine: str, recompute: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = {
        (axes, precision): cell(engine, axes, precision=precision, activation_checkpointing=recompute)
        for axes in COMBINATIONS
        for precision in LOSS_TOLERANCE
    }
    accepted = {place: recipe for place, recipe in cells.items() if refusal(recipe) is None}
    runs = train_many({**references(accepted), **{name(*place): r for place, r in accepted.items()}}, tmp_path)
    found = {place: closeness(runs[kind(place[0])], runs[name(*place)]) for place in accepted}
    with capsys.disabled():
        print(f"\n{engine}, recompute {recompute}")
        print("axes                 precision  ranks  loss      parameters")
        for place, recipe in cells.items():
            print(row(*place, recipe, found.get(place)))
    assert {
        place: (loss, weights)
        for place, (loss, weights) in found.items()
        if loss > LOSS_TOLERANCE[place[1]] or weights > PARAMETER_TOLERANCE[place[1]]
    } == {}


def references(accepted: dict[tuple[tuple[str, ...], str], Recipe]) -> dict[str, Recipe]:
    """One process in fp32 without recomputation, for each model."""
    return {model: laid_out(ALONE, "ddp", kind=model) for model in {kind(axes) for axes, _ in accepted}}


def name(axes: tuple[str, ...], precision: str) -> str:
    return f"{'-'.join(axes)}-{precision}"


def row(axes: tuple[str, ...], precision: str, recipe: Recipe, found: tuple[float, float] | None) -> str:
    start = f"{' x '.join(axes):<20} {precision:<9}  {recipe.cluster.processes_per_instance:<5}"
    return f"{start}  {found[0]:.1e}   {found[1]:.1e}" if found else f"{start}  refused: {refusal(recipe)}"


def closeness(alone: Finished, other: Finished) -> tuple[float, float]:
    """Largest relative difference of the losses, and of the norms of the parameters after the last step."""
    assert len(alone.losses) == len(other.losses) == 20
    losses = max(abs(a - b) / a for a, b in zip(alone.losses, other.losses, strict=True))
    ours, theirs = parameters(alone), parameters(other)
    assert ours.keys() == theirs.keys()
    return losses, max(float((ours[key] - theirs[key].view_as(ours[key])).norm() / ours[key].norm()) for key in ours)
