from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from launcher.errors import NoSuchRunError
from launcher.plan import codec
from launcher.plan.planner import make_plan
from launcher.recipe.codec import encode as encode_recipe
from launcher.runs.report import Figure, cells, encode, make_report, read_run
from launcher.tracking import metrics
from launcher.tracking.spool import Row, Spool
from tests.plan.recipes import LLAMA3_8B, TINY, on, recipe

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.plan.plan import Plan
    from launcher.runs.report import Report

TINY_PLAN = make_plan(recipe(TINY))  # 10 steps
GIB = 1 << 30


def gpu_plan(*, dollars_per_hour: float | None = 100.0) -> Plan:
    """A plan on GPUs with figures that are easy to divide by."""
    plan = make_plan(recipe(LLAMA3_8B, cluster=on("Standard_ND96isr_H100_v5")))
    return replace(
        plan,
        batch=replace(plan.batch, train_steps=10),
        time=replace(
            plan.time, step_seconds=2.0, low_seconds=1.8, high_seconds=2.2, tokens_per_second=4000.0, mfu=0.4, hours=1.0
        ),
        memory=replace(plan.memory, bytes_per_gpu=60 * GIB, low_bytes=55 * GIB, high_bytes=65 * GIB),
        cost=replace(plan.cost, dollars=dollars_per_hour, dollars_per_hour=dollars_per_hour),
    )


def step(
    number: int, *, at: float, attempt: int = 1, seconds: float = 2.0, more: dict[str, float] | None = None
) -> Row:
    row = {
        metrics.LOSS: 5.0 - number / 10,
        metrics.STEP_SECONDS: seconds,
        metrics.COMPUTE_SECONDS: 0.75 * seconds,
        metrics.DATA_SECONDS: 0.25 * seconds,
        metrics.TOKENS_PER_SECOND: 8000.0 / seconds,
        metrics.PEAK_MEMORY_BYTES: 61.0 * GIB,
    }
    return Row(step=number, time=at, attempt=attempt, metrics=row | (more or {}))


def start(number: int, *, at: float, attempt: int = 1) -> Row:
    return Row(step=number, time=at, attempt=attempt, metrics={})


def whole_run() -> list[Row]:
    """Ten steps of two seconds; the first takes thirty."""
    first = step(1, at=1030.0, seconds=30.0)
    return [start(1, at=1000.0), first, *(step(n, at=1030.0 + 2 * (n - 1)) for n in range(2, 11))]


def report(plan: Plan, rows: list[Row]) -> Report:
    return make_report(plan, rows, handle="local:tiny-1", state="Completed")


def figure(of: Report, name: str) -> Figure:
    return next(figure for figure in of.figures if figure.name == name)


def test_speed_is_the_median_of_the_steps_after_the_first_ones() -> None:
    made = report(gpu_plan(), whole_run())

    assert figure(made, "step_seconds").measured == 2.0
    assert figure(made, "tokens_per_second").measured == 4000.0
    assert figure(made, "tokens_per_second").ratio == 1.0


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (1.79, "below the interval"),
        (1.8, "inside the interval"),
        (2.2, "inside the interval"),
        (2.21, "above the interval"),
    ],
)
def test_the_verdict_says_on_which_side_of_the_interval_it_lies(measured: float, verdict: str) -> None:
    rows = [step(number, at=1000.0 + number, seconds=measured) for number in range(1, 11)]

    assert figure(report(gpu_plan(), rows), "step_seconds").verdict == verdict


def test_memory_of_a_gpu_is_judged_and_a_process_s_resident_set_is_not() -> None:
    on_gpu, on_cpu = report(gpu_plan(), whole_run()), report(TINY_PLAN, whole_run())

    assert figure(on_gpu, "peak_memory_bytes").verdict == "inside the interval"
    assert figure(on_cpu, "peak_memory_bytes").verdict is None
    assert any("resident set" in note for note in on_cpu.notes)
    assert not any("resident set" in note for note in on_gpu.notes)


def test_hours_and_dollars_are_of_all_attempts_and_steps_count_once() -> None:
    # attempt 1: 30 minutes to step 7; attempt 2 goes on at 6 and takes 15 minutes. 45 minutes at 100 dollars an hour
    rows = [
        start(1, at=0.0),
        *(step(number, at=1800.0 * number / 7) for number in range(1, 8)),
        start(6, at=5000.0, attempt=2),
        *(step(number, at=5000.0 + 180.0 * (number - 5), attempt=2) for number in range(6, 11)),
    ]
    made = report(gpu_plan(), rows)

    assert made.attempts == 2
    assert figure(made, "hours").measured == pytest.approx(0.75)
    assert figure(made, "dollars").measured == pytest.approx(75.0)
    assert figure(made, "dollars").ratio == pytest.approx(0.75)
    assert figure(made, "steps").measured == 10


def test_a_run_that_ended_early_is_compared_with_the_plan_of_its_steps() -> None:
    made = report(gpu_plan(), whole_run()[:6])

    assert figure(made, "hours").planned == pytest.approx(0.5)
    assert figure(made, "dollars").planned == pytest.approx(50.0)
    assert figure(made, "steps").planned == 10
    assert made.notes[0].startswith("5 of 10 steps were done")


def test_an_unknown_price_stays_unknown() -> None:
    dollars = figure(report(gpu_plan(dollars_per_hour=None), whole_run()), "dollars")

    assert (dollars.planned, dollars.measured, dollars.ratio) == (None, None, None)
    assert cells(dollars) == ("dollars", "unknown", "unknown", "", "")


def test_time_is_divided_between_compute_data_evaluation_checkpoints_and_the_rest() -> None:
    # 100 s: rows every five steps of 8 s (6 compute, 2 data), 10 s evaluation, 5 s checkpoint: 60 + 20 + 10 + 5 + 5
    tail = {metrics.EVALUATION_SECONDS: 10.0, metrics.CHECKPOINT_SECONDS: 5.0}
    rows = [start(1, at=0.0), step(5, at=40.0, seconds=8.0), step(10, at=100.0, seconds=8.0, more=tail)]
    shares = {share.name: round(share.measured, 6) for share in report(gpu_plan(), rows).shares}

    assert shares == {"compute": 0.6, "waiting for data": 0.2, "evaluation": 0.1, "checkpoints": 0.05, "other": 0.05}


def test_losses_are_the_first_the_last_and_the_last_on_held_out_text() -> None:
    made = report(gpu_plan(), [*whole_run(), Row(step=10, time=1100.0, attempt=1, metrics={"evaluation_loss": 4.2})])

    assert (made.loss_first, made.loss_last) == (4.9, 4.0)
    assert (made.evaluation_loss, made.evaluation_step) == (4.2, 10)


def test_json_has_the_promised_names() -> None:
    document = json.loads(json.dumps(encode(report(gpu_plan(), whole_run())), allow_nan=False))

    assert (document["handle"], document["state"]) == ("local:tiny-1", "Completed")
    names = {"step_seconds", "tokens_per_second", "peak_memory_bytes", "steps", "mfu", "dollars", "hours"}
    assert set(document["planned"]) == names
    assert set(document["measured"]) == names | {"loss_first", "loss_last", "evaluation_loss", "evaluation_step"}
    assert document["measured"]["peak_memory_bytes"] == 61 * GIB
    assert document["planned"]["peak_memory_bytes"] == 60 * GIB


def test_a_diverged_run_says_so_in_json_that_any_reader_takes() -> None:
    rows = [*whole_run()[:8], step(8, at=1044.0, more={metrics.LOSS: math.nan})]
    document = json.loads(json.dumps(encode(report(gpu_plan(), rows)), allow_nan=False))

    assert document["measured"]["loss_last"] is None
    assert "The loss is no number from step 8 on: the run has diverged." in document["notes"]


def test_a_run_without_metrics_has_a_report_of_its_plan_alone() -> None:
    made = report(gpu_plan(), [])

    assert figure(made, "step_seconds").measured is None
    assert made.shares == ()
    assert made.notes[0].startswith("The run left no metrics")


def test_a_figure_reads_as_one_line_of_a_table() -> None:
    seconds = Figure(name="step_seconds", label="step", unit="seconds", planned=8.22, low=7.6, high=8.9, measured=8.61)

    assert cells(seconds) == ("step", "8.22 s [7.60 s, 8.90 s]", "8.61 s", "1.05", "inside the interval")


def test_a_run_s_folder_gives_plan_recipe_and_rows(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(codec.encode(TINY_PLAN)))
    (tmp_path / "recipe.json").write_text(json.dumps(encode_recipe(recipe(TINY))))
    Spool(tmp_path / "output" / "metrics.jsonl").append(1, {"loss": 5.0})
    run = read_run(tmp_path)

    assert run.plan == TINY_PLAN
    assert run.recipe["model"]["hidden_size"] == 64
    assert [row.step for row in run.rows] == [1]


def test_a_folder_that_holds_no_run_is_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRunError, match="holds no run"):
        read_run(tmp_path)
