"""Predictions beside published measurements: the accuracy that is promised, and the shape of the answer."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

from launcher.plan.audit import Audit, audit, read_rows
from launcher.plan.published_row import published_row

PUBLISHED = Path(__file__).parents[1] / "published"


def published() -> list[dict[str, str]]:
    """Every row of the shared schema."""
    rows = []
    for path in sorted(PUBLISHED.glob("*.csv")):
        with path.open() as lines:
            rows += [row for row in csv.DictReader(lines) if "step_s" in row]
    return rows


@pytest.fixture(scope="module")
def answer() -> Audit:
    return audit(*read_rows(published()))


def test_every_row_is_predicted_or_named_with_a_reason(answer: Audit) -> None:
    assert len(answer.rows) + len(answer.excluded) == 606 + 27
    assert {reason for _, reason in answer.excluded} == {"hybrid state-space model, no shape printed in the table"}
    assert len(answer.excluded) == 39


def test_dense_step_times_are_met_in_sample(answer: Audit) -> None:
    errors = sorted(error for regime, error in errors_of(answer) if regime != "experts")

    assert median(errors) < 0.045
    assert errors[int(0.9 * len(errors))] < 0.11


@pytest.mark.parametrize(("regime", "limit"), [("context", 0.12), ("experts", 0.12)])
def test_the_harder_regimes_are_met_in_sample(answer: Audit, regime: str, limit: float) -> None:
    assert median(error for kind, error in errors_of(answer) if kind == regime) < limit


def errors_of(answer: Audit) -> list[tuple[str, float]]:
    """Relative error of each step time, with its regime."""
    return [
        (row.regime, abs(row.predicted_step_seconds / row.measured_step_seconds - 1))
        for row in answer.rows
        if row.measured_step_seconds
    ]


def test_the_interval_covers_what_it_says(answer: Audit) -> None:
    total = answer.summary[0]

    assert total.group == "all"
    assert total.coverage is not None
    assert total.coverage >= 0.8  # in sample; of left-out rows fit.py sets it to 0.8


def test_reported_memory_is_met(answer: Audit) -> None:
    total = answer.summary[0]

    assert total.memory_rows == 76
    assert total.median_memory_error is not None
    assert total.median_memory_error < 0.07


def test_no_row_that_ran_is_refused_and_none_that_ran_out_of_memory_is_said_to_fit(answer: Audit) -> None:
    outcomes = [row.fits for row in answer.rows]

    assert outcomes.count(False) == 6
    assert outcomes.count(True) == 69
    assert answer.summary[0].misjudged == ()


def test_a_row_that_ran_although_it_should_not_fit_is_named() -> None:
    (row,) = [row for row in published() if row["id"] == "alpaca-7b-1"]

    ran = audit(*read_rows([{**row, "outcome": "fits"}]))
    assert ran.summary[0].misjudged == ("alpaca-7b-1",)


def test_a_column_the_model_needs_is_named_when_it_is_empty() -> None:
    row = {**published()[0], "h": ""}

    assert read_rows([row])[1] == [(row["id"], f"{row['id']}: column h is empty")]


def test_an_unknown_stack_is_said() -> None:
    row = {**published()[0], "stack": "alpa"}

    assert "unknown stack 'alpa'" in read_rows([row])[1][0][1]


def test_torchtitan_pipelines_cut_the_local_batch_into_as_many_micro_batches_as_stages() -> None:
    (row,) = [row for row in published() if row["id"] == "torchtitan-012"]

    work = published_row(row).workload
    assert (work.micro_batch, work.micro_batches) == (4, 8)
