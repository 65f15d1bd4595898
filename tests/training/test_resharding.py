"""A checkpoint of any layout is continued in any other: the loss goes on as if nothing had happened."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from launcher.plan.planner import make_plan
from launcher.training.data.loader import micro_batches
from tests.training.layouts import ALONE, DEEPSPEED, EXPERTS, FSDP, laid_out
from tests.training.runs import train, train_many
from tests.training.state import digests

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


@pytest.mark.parametrize("after", EIGHT)
@pytest.mark.parametrize("before", EIGHT)
def test_every_sequence_is_seen_once_whatever_layout_goes_on(before: str, after: str) -> None:
    seen = [*ordinals(before, range(1, FIRST + 1)), *ordinals(after, range(FIRST + 1, ALL + 1))]
    assert sorted(seen) == list(range(ALL * 8))  # 8 sequences a step


def ordinals(name: str, steps: range) -> list[int]:
    """Which sequences all data-parallel ranks of a layout read in ``steps``."""
    plan = make_plan(recipe(name, steps=ALL))
    batch, data = plan.batch, plan.topology.data_parallel_size
    portions = [
        micro_batches(
            step - 1,
            global_batch_size=batch.global_batch_size,
            micro_batch_size=batch.micro_batch_size,
            data_rank=rank,
            data_parallel_size=data,
        )
        for step in steps
        for rank in range(data)
    ]
    return [ordinal for portion in portions for some in portion for ordinal in some]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_each_of_eight_layouts_into_each_of_the_others(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    halves = {name: recipe(name, steps=FIRST, model=model) for name in EIGHT}
    wholes = {f"unbroken {name}": recipe(name, steps=ALL, model=model) for name in EIGHT}
    runs = train_many({**halves, **wholes}, tmp_path)
    pairs = {f"{before} to {after}": (before, after) for before, after in product(EIGHT, EIGHT)}
    resumed = train_many(
        {pair: recipe(after, steps=ALL, model=model) for pair, (_, after) in pairs.items()},
        tmp_path,
        resume_from={pair: runs[before].output / "checkpoints" for pair, (before, _) in pairs.items()},
    )
    expected = runs["unbroken alone"].losses[FIRST:]
    found = {pairs[pair]: largest_difference(expected, run.losses) for pair, run in resumed.items()}
    with capsys.disabled():
        print("\n" + "\n".join(f"{before:<28} -> {after:<28} {far:.1e}" for (before, after), far in found.items()))
    assert {pair: difference for pair, difference in found.items() if difference > 1e-5} == {}
    for name in EIGHT:
        again, unbroken = resumed[f"{name} to {name}"], runs[f"unbroken {name}"]
        assert again.losses == unbroken.losses[FIRST:], name
        assert digests(again) == digests(unbroken), name


def largest_difference(expected: list[float], losses: list[float]) -> float:
    return max(abs(a - b) / a for a, b in zip(expected, losses, strict=True))


def test_mixtral_experts_are_taken_apart_and_put_together_again(tmp_path: Path) -> None:
    training = {"train_steps": 2, "schedule": {"name": "constant"}, "evaluation_batches": 0}
    shared = laid_out(EXPERTS["expert-tensor"], "fsdp", kind="mixtral", training=training)
    longer = {**training, "train_steps": 4}
    alone = laid_out(ALONE, "ddp", kind="mixtral", training=longer)
    runs = train_many({"shared": shared, "unbroken": alone}, tmp_path)
    folder = runs["shared"].output / "checkpoints"
    resumed = train_many({"alone": alone}, tmp_path, resume_from={"alone": folder})["alone"]
    assert resumed.losses == pytest.approx(runs["unbroken"].losses[2:], rel=1e-5)
