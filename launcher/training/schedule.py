"""The learning rate of each optimizer step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.recipe.schema import Training

WSD_DECAY_SHARE = 0.1
"""Part of the run over which ``wsd`` decays without ``decay_steps`` (MiniCPM, arXiv:2404.06395, section 4)."""


def learning_rate(training: Training, *, step: int, train_steps: int) -> float:
    """The rate used in optimizer step ``step`` (1-based) of ``train_steps``.

    Linear warm-up reaches the peak in step ``warmup_steps``; then the named shape falls to
    ``min_learning_rate_ratio`` of the peak in the last step of its decay, and stays there.
    """
    peak, schedule = training.optimizer.learning_rate, training.schedule
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    first, length = _decay(training, train_steps)
    progress = min(max(step - first, 0) / max(length, 1), 1.0)
    floor = schedule.min_learning_rate_ratio
    return peak * (floor + (1 - floor) * _share(schedule.name, progress))


def _decay(training: Training, train_steps: int) -> tuple[int, int]:
    """The last step at the peak, and over how many steps the rate falls after it."""
    schedule = training.schedule
    after_warmup = max(train_steps - schedule.warmup_steps, 1)
    if schedule.name == "wsd":
        length = schedule.decay_steps or max(1, round(train_steps * WSD_DECAY_SHARE))
        length = min(length, after_warmup)
        return train_steps - length, length
    return schedule.warmup_steps, schedule.decay_steps or after_warmup


def _share(name: str, progress: float) -> float:
    """What is left of the peak above the floor, from 1 at the start of the decay to 0 at its end."""
    if name == "constant":
        return 1.0
    if name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    return 1 - progress
