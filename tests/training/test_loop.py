"""The loop in this process, alone: what it tells the tracker, and where its random numbers come from."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from launcher.plan.plan import place
from launcher.plan.planner import make_plan
from launcher.tracking.tracker import NullTracker
from launcher.training import progress
from launcher.training.checkpoint import keeper, shard
from launcher.training.data.prepare import prepare
from launcher.training.loop import step_seed
from tests.training.alone import loop_of
from tests.training.layouts import ALONE, laid_out
from tests.training.runs import tiny_recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from launcher.training.loop import Loop


class Listener(NullTracker):
    """Remembers what it was told, and may act on a step."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.rows: list[dict[str, float]] = []
        self.on_step: dict[int, Callable[[], None]] = {}

    def start(self, *, tags: Any = None, **_: Any) -> None:
        self.tags = dict(tags)

    def log(self, step: int, metrics: Any) -> None:
        self.rows.append(dict(metrics))
        self.on_step.get(step, lambda: None)()


def heard(recipe: Recipe, output: Path) -> tuple[Loop, Listener]:
    listener = Listener()
    return loop_of(recipe, listener, output), listener


def test_shards_that_were_left_out_become_a_tag_of_the_run(alone: Path) -> None:
    for number, text in enumerate(("one ", "two ")):
        (alone / f"{number}.txt").write_text(text * 200)
        prepare([alone / f"{number}.txt"], alone / f"shard-{number}")
    (alone / "shard-1.bin").write_bytes(b"torn")
    data = {"train": (str(alone / "shard-*.idx"),), "quarantine_limit": 1}
    loop, listener = heard(tiny_recipe(data=data, training={"train_steps": 1}), alone)
    loop.run()
    assert "shard-1.bin has 4 bytes" in listener.tags["quarantined"]


def test_the_load_of_the_busiest_expert_is_reported(alone: Path) -> None:
    recipe = laid_out(ALONE, "ddp", kind="mixtral", training={"train_steps": 1, "evaluation_batches": 0})
    loop, listener = heard(recipe, alone)
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


def test_a_disk_that_is_too_slow_costs_saves_and_no_steps(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_ready, write = threading.Event(), shard.write_shard

    def write_when_ready(*arguments: Any) -> Any:
        assert is_ready.wait(60)
        return write(*arguments)

    monkeypatch.setattr(keeper, "write_shard", write_when_ready)
    monkeypatch.setattr(progress, "LONGEST_STALL_SECONDS", 0.01)
    training = {"train_steps": 6, "evaluation_batches": 0}
    loop, listener = heard(tiny_recipe(training=training, checkpoint={"interval_steps": 1}), alone)
    listener.on_step[4] = is_ready.set
    assert loop.run().step == 6
    said = capsys.readouterr().out
    assert "warning: step 2 is not saved: the checkpoint before it is still being written" in said
    assert "warning: step 3 is not saved" in said
    assert "saved step-00000001-" in said
    assert "saved step-00000006-" in said
