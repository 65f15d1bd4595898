"""What a run says while it runs: metric rows through the tracker, and lines on rank 0's standard output."""

from __future__ import annotations

import resource
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from launcher.tracking import metrics
from launcher.units import SECONDS_PER_HOUR, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe
    from launcher.tracking.tracker import Tracker
    from launcher.training.ranks import Ranks


class Record:
    """Times, losses and rates of a run. Durations come from a clock that nobody sets; made before the model is."""

    def __init__(self, plan: Plan, recipe: Recipe, ranks: Ranks, tracker: Tracker) -> None:
        self.plan, self.ranks, self.tracker = plan, ranks, tracker
        self.interval = recipe.tracking.log_interval_steps
        self.began = time.monotonic()
        self.seconds = dict.fromkeys(("data", "compute", "evaluation", "checkpoint"), 0.0)
        self.steps_since = 0
        self.library_bytes = None if ranks.device.type == "cuda" else peak_memory_bytes(ranks.device)

    def start(self, *, first_step: int, artifacts: dict[str, str], tags: dict[str, str]) -> None:
        """Tell the tracker where this attempt begins."""
        self.tracker.start(first_step=first_step, artifacts=artifacts, tags=tags)

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Add the time spent inside to ``part``."""
        began = time.monotonic()
        yield
        if self.ranks.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds[part] += time.monotonic() - began

    def step(
        self, step: int, *, loss: float, learning_rate: float, gradient_norm: float, expert_load: float | None = None
    ) -> None:
        """A step is done: every ``log_interval_steps`` steps, a row and a line; times are means over them."""
        self.steps_since += 1
        if step % self.interval and step != self.plan.batch.train_steps:
            return
        data, compute = (self.seconds[part] / self.steps_since for part in ("data", "compute"))
        speed = self.plan.batch.tokens_per_step / (data + compute)
        row = {
            metrics.LOSS: loss,
            metrics.LEARNING_RATE: learning_rate,
            metrics.GRADIENT_NORM: gradient_norm,
            metrics.STEP_SECONDS: data + compute,
            metrics.DATA_SECONDS: data,
            metrics.COMPUTE_SECONDS: compute,
            metrics.TOKENS_PER_SECOND: speed,
            metrics.TOKENS_PER_SECOND_PER_GPU: speed / self.ranks.world_size,
            metrics.TOKENS_SEEN: float(step * self.plan.batch.tokens_per_step),
            metrics.PEAK_MEMORY_BYTES: float(peak_memory_bytes(self.ranks.device)),
            **self._against_plan(speed),
        }
        more = {metrics.LIBRARY_MEMORY_BYTES: self.library_bytes, metrics.EXPERT_LOAD: expert_load}
        row |= {name: float(value) for name, value in more.items() if value is not None}
        self.tracker.log(step, row)
        self.say(
            f"step {step}/{self.plan.batch.train_steps} loss {loss:.4f} lr {learning_rate:.1e} "
            f"{format_count(speed)} tokens/s"
        )
        self.seconds["data"] = self.seconds["compute"] = 0.0
        self.steps_since = 0

    def evaluation(self, step: int, *, loss: float) -> None:
        """Held-out text was read."""
        self.tracker.log(step, {metrics.EVALUATION_LOSS: loss, metrics.EVALUATION_SECONDS: self._take("evaluation")})
        self.say(f"evaluation after step {step}: loss {loss:.4f}")

    def saved(self, step: int, name: str) -> None:
        """A checkpoint is whole."""
        seconds = self._take("checkpoint")
        self.tracker.log(step, {metrics.CHECKPOINT_SECONDS: seconds})
        self.say(f"saved {name} in {seconds:.2f} s")

    def say(self, line: str) -> None:
        """One line from rank 0; a closed or full standard output does not end training."""
        if not self.ranks.leads:
            return
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except OSError:
            return  # nobody reads any more; training and the metrics go on

    def _against_plan(self, speed: float) -> dict[str, float]:
        """MFU and dollars so far, where the plan knows the peak and the price."""
        found = {}
        estimate, price = self.plan.time, self.plan.cost.dollars_per_hour
        if estimate.mfu:
            found[metrics.MFU] = estimate.mfu * speed / estimate.tokens_per_second
        if price is not None:
            found[metrics.DOLLARS] = price * (time.monotonic() - self.began) / SECONDS_PER_HOUR
        return found

    def _take(self, part: str) -> float:
        seconds, self.seconds[part] = self.seconds[part], 0.0
        return seconds


def peak_memory_bytes(device: torch.device) -> int:
    """Most device memory this rank has held; on a CPU, its largest resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kibibytes on Linux
