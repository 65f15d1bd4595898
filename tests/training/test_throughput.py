"""How fast the loop is beside a bare torch loop on the same model and data, in one process, in turns."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pytest
import torch

from launcher.plan.planner import make_plan
from launcher.tracking.tracker import NullTracker
from launcher.training.assignment import Assignment
from launcher.training.families import make_configuration, make_model
from launcher.training.loop import Loop
from launcher.training.ranks import read_ranks
from tests.training.runs import job_document, tiny_recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.recipe.schema import Recipe

ROUNDS = 5
STEPS = 4
"""In each round, of each of the two."""


def wide_recipe() -> Recipe:
    """3.2 M parameters on 1,024 tokens a step, as much as the smallest shipped recipe."""
    return tiny_recipe(
        model={"hidden_size": 256, "num_hidden_layers": 4, "max_position_embeddings": 128},
        training={"seq_length": 128, "train_steps": 1000, "micro_batch_size": 4},
    )


def our_step(recipe: Recipe, output: Path) -> Callable[[], None]:
    """One step of the loop: data, two micro batches, clipping, update, metrics."""
    plan = make_plan(recipe)
    assignment = Assignment(document=job_document(recipe), recipe=recipe, plan=plan, resume_from=None)
    ranks = read_ranks({}, local_world_size=1, uses_gpu=False)
    loop = Loop(assignment, ranks, NullTracker(), output=output)
    upcoming = loop.train.steps(1, plan.batch.train_steps)
    return lambda: loop._one_step(upcoming)


def bare_step(recipe: Recipe) -> Callable[[], None]:
    """The same with nothing but transformers and torch."""
    model = make_model(make_configuration(recipe.model, attn_implementation="sdpa"), recipe.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, 257, (2, 4, 129))

    def step() -> None:
        for batch in tokens:
            logits = model(batch[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            (loss / len(tokens)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def seconds(step: Callable[[], None]) -> float:
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - began) / STEPS


@pytest.mark.benchmark
def test_the_loop_is_as_fast_as_a_bare_one(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = wide_recipe()
    steps = {"ours": our_step(recipe, alone), "bare": bare_step(recipe)}
    for step in steps.values():
        seconds(step)  # warm
    ratios, times = [], []
    for _ in range(ROUNDS):
        ours, bare = (seconds(steps[name]) for name in ("ours", "bare"))
        ratios.append(bare / ours)
        times.append(ours)
    ratio = statistics.median(ratios)
    with capsys.disabled():
        print(f"\nloop {1024 / statistics.median(times):,.0f} tokens/s, {ratio:.3f} of a bare torch loop")
    assert ratio >= 0.97
