"""A checkpoint of any layout is continued in any other: the loss goes on as if nothing had happened."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.training.layouts import ALONE, DEEPSPEED, EXPERTS, FSDP, laid_out
from tests.training.runs import train, train_many

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from tests.training.layouts import Layout

EIGHT: dict[str, tuple[str, Layout]] = {
    "alone": ("ddp", ALONE),
    "ddp-2": ("ddp", (2, {})),
    "hsdp-4": ("fsdp", FSDP["hsdp"]),
    "tensor-pipeline-4": ("fsdp", FSDP["tensor-pipeline"]),
    "context-pipeline-4": ("fsdp", FSDP["context-pipeline"]),
    "zero2-2": ("deepspeed", DEEPSPEED["zero2"]),
    "zero3-2": ("deepspeed", DEEPSPEED["zero3"]),
    "deepspeed-tensor-pipeline-4": ("deepspeed", DEEPSPEED["tensor-pipeline"]),
}
FIRST, ALL = 4, 8
"""Steps before and after the change of layout, in all."""


def recipe(name: str, *, steps: int, model: str = "gpt2") -> Recipe:
    engine, layout = EIGHT[name]
    training = {"train_steps": steps, "schedule": {"name": "constant"}, "evaluation_batches": 0}
    return laid_out(layout, engine, kind=model, training=training)


def test_a_run_changes_its_layout_twice(tmp_path: Path) -> None:
    unbroken = train(recipe("alone", steps=6), tmp_path / "unbroken")
    chain = ("zero2-2", "tensor-pipeline-4", "alone")
    losses, folder = [], None
    for step, name in zip((2, 4, 6), chain, strict=True):
        run = train(recipe(name, steps=step), tmp_path / name, resume_from=folder)
        assert folder is None or f"resumed after step {step - 2}" in run.logs[0]
        losses += run.losses
        folder = run.output / "checkpoints"
    assert losses == pytest.approx(unbroken.losses, rel=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_each_of_eight_layouts_into_each_of_the_others(tmp_path: Path, model: str) -> None:
    unbroken = train(recipe("alone", steps=ALL, model=model), tmp_path / "unbroken")
    first = {name: train(recipe(name, steps=FIRST, model=model), tmp_path / name) for name in EIGHT}
    found = {}
    for before, after in product(EIGHT, EIGHT):
        folder = first[before].output / "checkpoints"
        run = train(recipe(after, steps=ALL, model=model), tmp_path / f"{before}-{after}", resume_from=folder)
        pairs = zip(unbroken.losses[FIRST:], run.losses, strict=True)
        found[before, after] = max(abs(a - b) / a for a, b in pairs)
        print(f"{before:<28} -> {after:<28} {found[before, after]:.1e}")
    assert {pair: difference for pair, difference in found.items() if difference > 1e-5} == {}


def test_mixtral_experts_are_taken_apart_and_put_together_again(tmp_path: Path) -> None:
    training = {"train_steps": 2, "schedule": {"name": "constant"}, "evaluation_batches": 0}
    shared = laid_out(EXPERTS["expert-tensor"], "fsdp", kind="mixtral", training=training)
    longer = {**training, "train_steps": 4}
    alone = laid_out(ALONE, "ddp", kind="mixtral", training=longer)
    runs = train_many({"shared": shared, "unbroken": alone}, tmp_path)
    folder = runs["shared"].output / "checkpoints"
    resumed = train_many({"alone": alone}, tmp_path, resume_from={"alone": folder})["alone"]
    assert resumed.losses == pytest.approx(runs["unbroken"].losses[2:], rel=1e-5)
