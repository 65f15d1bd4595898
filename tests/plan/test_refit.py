"""Constants of one's own stack: what runs teach, and what they cannot."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.plan.audit import read_rows
from launcher.plan.calibration import LIMITS, shipped
from launcher.plan.refit import refit, solved
from launcher.plan.step_time import step

if TYPE_CHECKING:
    from launcher.plan.published_row import PublishedRow

PUBLISHED = Path(__file__).parents[1] / "published"


def rows(table: str) -> list[PublishedRow]:
    """The timed rows of a published table."""
    with (PUBLISHED / f"{table}.csv").open() as lines:
        return [row for row in read_rows(csv.DictReader(lines))[0] if row.step_seconds]


def test_runs_that_all_take_longer_are_met_after_the_fit_left_out_ones_too() -> None:
    slower = [replace(row, step_seconds=1.15 * (row.step_seconds or 0)) for row in rows("fmsfsdp")]

    found = refit(slower)
    assert found.before > 0.1
    assert found.after < 0.04
    assert found.left_out is not None
    assert found.left_out < 0.06
    assert found.half_width is not None
    assert found.half_width >= found.left_out
    assert all(LIMITS[name][0] <= value <= LIMITS[name][1] for name, value in found.moved.items())


def test_runs_that_take_what_was_predicted_teach_nothing() -> None:
    exact = [replace(row, step_seconds=step(row.workload, shipped()).seconds) for row in rows("fmsfsdp")]

    found = refit(exact)
    assert found.moved == {}
    assert found.after == 0


def test_dense_runs_say_nothing_of_experts() -> None:
    assert not any(name.startswith("expert_") for name in refit(rows("fmsfsdp")).moved)


def test_a_system_is_solved_by_elimination() -> None:
    # 4x + y = 1, x + 3y = 2: x = 1/11, y = 7/11.
    assert solved([[4.0, 1.0], [1.0, 3.0]], [1.0, 2.0]) == pytest.approx([1 / 11, 7 / 11])
