"""Learning rates worked out by hand: peak 1.0, floor 0.1."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.recipe.schema import Optimizer, Schedule, Training
from launcher.training.schedule import learning_rate


def rates(train_steps: int, **schedule: Any) -> list[float]:
    training = Training(
        seq_length=1, global_batch_size=1, optimizer=Optimizer(learning_rate=1.0), schedule=Schedule(**schedule)
    )
    return [learning_rate(training, step=step, train_steps=train_steps) for step in range(1, train_steps + 1)]


def test_warm_up_rises_in_equal_parts_to_the_peak() -> None:
    assert rates(6, name="constant", warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_falls_in_equal_parts_to_the_floor_in_the_last_step() -> None:
    # After 2 steps of warm-up 3 remain: 1 - 0.9 x 1/3, 1 - 0.9 x 2/3, 0.1.
    assert rates(5, name="linear", warmup_steps=2) == pytest.approx([0.5, 1.0, 0.7, 0.4, 0.1])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    # 0.1 + 0.9 x (1 + cos(pi k / 4)) / 2 for k = 1..4.
    assert rates(4, name="cosine") == pytest.approx([0.868198, 0.55, 0.231802, 0.1], abs=1e-6)


def test_a_short_decay_leaves_the_rest_at_the_floor() -> None:
    assert rates(4, name="linear", decay_steps=2) == pytest.approx([0.55, 0.1, 0.1, 0.1])


def test_wsd_stays_at_the_peak_and_falls_over_its_last_steps() -> None:
    expected = [0.5, 1.0, 1.0, 1.0, 0.55, 0.1]
    assert rates(6, name="wsd", warmup_steps=2, decay_steps=2) == pytest.approx(expected)


def test_wsd_decays_over_the_last_tenth_unless_told_otherwise() -> None:
    assert rates(20, name="wsd")[-3:] == pytest.approx([1.0, 0.55, 0.1])
