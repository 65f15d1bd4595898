"""The loop in this process, alone: what it tells the tracker, and where its random numbers come from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from launcher.plan.plan import place
from launcher.plan.planner import make_plan
from launcher.tracking.tracker import NullTracker
from launcher.training.assignment import Assignment
from launcher.training.data.prepare import prepare
from launcher.training.loop import Loop, step_seed
from launcher.training.ranks import read_ranks
from tests.training.layouts import ALONE, laid_out
from tests.training.runs import job_document, tiny_recipe

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe


class Listener(NullTracker):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.rows: list[dict[str, float]] = []

    def start(self, *, tags: Any = None, **_: Any) -> None:
        self.tags = dict(tags)

    def log(self, step: int, metrics: Any) -> None:
        self.rows.append(dict(metrics))


def loop_of(recipe: Recipe, output: Path) -> tuple[Loop, Listener]:
    assignment = Assignment(document=job_document(recipe), recipe=recipe, plan=make_plan(recipe), resume_from=None)
    listener = Listener()
    return Loop(assignment, read_ranks({}, local_world_size=1, uses_gpu=False), listener, output=output), listener


def test_shards_that_were_left_out_become_a_tag_of_the_run(alone: Path) -> None:
    for number, text in enumerate(("one ", "two ")):
        (alone / f"{number}.txt").write_text(text * 200)
        prepare([alone / f"{number}.txt"], alone / f"shard-{number}")
    (alone / "shard-1.bin").write_bytes(b"torn")
    data = {"train": (str(alone / "shard-*.idx"),), "quarantine_limit": 1}
    loop, listener = loop_of(tiny_recipe(data=data, training={"train_steps": 1}), alone)
    loop.run()
    assert "shard-1.bin has 4 bytes" in listener.tags["quarantined"]


def test_the_load_of_the_busiest_expert_is_reported(alone: Path) -> None:
    recipe = laid_out(ALONE, "ddp", kind="mixtral", training={"train_steps": 1, "evaluation_batches": 0})
    loop, listener = loop_of(recipe, alone)
    with torch.no_grad():
        for layer in loop.engine.decoders[0].layers:
            layer.mlp.gate.weight.zero_()  # every token is routed to the same two of four experts
    loop.run()
    assert listener.rows[0]["expert_load"] == pytest.approx(2.0)


@pytest.mark.parametrize(("shares_sequence", "seeds"), [(False, 4), (True, 8)])
def test_ranks_drop_the_same_only_where_they_hold_the_same(shares_sequence: bool, seeds: int) -> None:
    layout = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "sequence_parallel": shares_sequence}
    recipe = laid_out((8, layout), "fsdp")
    topology = make_plan(recipe).topology
    found = {step_seed(recipe, place(topology, rank), 3) for rank in range(8)}
    assert len(found) == seeds
    assert found.isdisjoint(step_seed(recipe, place(topology, rank), 4) for rank in range(8))
    other = replace(recipe, training=replace(recipe.training, seed=7))
    assert found.isdisjoint(step_seed(other, place(topology, rank), 3) for rank in range(8))
