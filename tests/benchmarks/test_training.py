"""How fast the training loop is beside a bare torch loop and transformers' Trainer, and what watching it costs.

``pytest -m benchmark -s`` prints the ratios. Both sides take turns, step by step, in one process on the same model and
as many tokens, so that whatever else the machine does falls on both; medians are compared.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from launcher.tracking.tracker import NullTracker, open_tracker
from launcher.training.families import make_configuration, make_model
from tests.training.alone import joined_alone, loop_of
from tests.training.runs import job_document, tiny_recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from launcher.recipe.schema import Recipe

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

STEPS = 30
"""Of each of the two, in turn."""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("LAUNCHER_HOME", str(tmp_path / "home"))
    with joined_alone():
        yield


def wide_recipe(**changes: Any) -> Recipe:
    """3.2 M parameters on 1,024 tokens a step, as much as the smallest shipped recipe."""
    training = {"seq_length": 128, "train_steps": 1000, "micro_batch_size": 4, **changes.pop("training", {})}
    model = {"hidden_size": 256, "num_hidden_layers": 4, "max_position_embeddings": 128}
    return tiny_recipe(model=model, training=training, **changes)


def our_step(recipe: Recipe, output: Path) -> Callable[[], None]:
    """One step of the loop: data, two micro batches, clipping, update, metrics."""
    loop = loop_of(recipe, NullTracker(), output)
    upcoming = loop.train.steps(1, recipe.training.train_steps or 0)
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
    step()
    return time.perf_counter() - began


def tell(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(f"\n{line} (machine load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")


def test_the_loop_is_as_fast_as_a_bare_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = wide_recipe()
    ours, bare = our_step(recipe, tmp_path), bare_step(recipe)
    for _ in range(3):
        ours(), bare()  # warm
    times = [(seconds(ours), seconds(bare)) for _ in range(STEPS)]
    our_median, bare_median = (statistics.median(side) for side in zip(*times, strict=True))
    ratio = bare_median / our_median
    tell(capsys, f"loop {1024 / our_median:,.0f} tokens/s, {ratio:.3f} of a bare torch loop")
    assert ratio >= 0.97


def test_the_loop_is_as_fast_as_transformers_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.utils import logging

    logging.set_verbosity_error()
    recipe = wide_recipe()
    ours = our_step(recipe, tmp_path)
    times: list[tuple[float, float]] = []

    class Turns(TrainerCallback):  # type: ignore[misc]
        """After each of the Trainer's steps, one of ours."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            theirs = time.perf_counter() - self.began
            times.append((seconds(ours), theirs))

    arguments = TrainingArguments(
        output_dir=str(tmp_path / "trainer"), max_steps=STEPS + 3, per_device_train_batch_size=4,
        gradient_accumulation_steps=2, learning_rate=3e-3, adam_beta2=0.95, weight_decay=0.1, max_grad_norm=1.0,
        save_strategy="no", report_to=[], use_cpu=True, logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    rows = torch.randint(0, 257, (64, 128)).tolist()
    data: Any = [{"input_ids": row, "labels": row} for row in rows]
    model = make_model(make_configuration(recipe.model, attn_implementation="sdpa"), recipe.model)
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Turns()]).train()
    our_median, their_median = (statistics.median(side) for side in zip(*times[3:], strict=True))
    ratio = their_median / our_median
    tell(capsys, f"loop {1024 / our_median:,.0f} tokens/s, {ratio:.3f} of transformers' Trainer")
    assert ratio >= 1.0


def test_tracking_saving_and_evaluating_cost_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """100 steps with MLflow, a checkpoint every 50 and an evaluation every 50, beside the same steps with nothing."""
    settings = {"train_steps": 100, "evaluation_interval_steps": 50, "evaluation_batches": 1}
    watched = wide_recipe(training=settings, checkpoint={"interval_steps": 50}, tracking={"enabled": True})
    plain = our_step(wide_recipe(), tmp_path / "plain")
    output = tmp_path / "watched"
    output.mkdir()
    tracker = open_tracker(job_document(watched), output=output, rank=0)
    loop = loop_of(watched, tracker, output)
    spent: list[float] = []
    one_step = loop._one_step

    def in_turns(upcoming: Any) -> None:
        """A step of the watched loop, and one of the other, whose time is taken out again."""
        one_step(upcoming)
        spent.append(seconds(plain))

    loop._one_step = in_turns  # type: ignore[method-assign]
    for _ in range(3):
        plain()  # warm
    began = time.perf_counter()
    loop.run()
    total = time.perf_counter() - began - sum(spent)
    tracker.finish("FINISHED")
    cost = total / sum(spent) - 1
    tell(capsys, f"tracking, 2 checkpoints and 2 evaluations in 100 steps cost {100 * cost:.1f} %")
    assert cost <= 0.05
