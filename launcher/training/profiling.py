"""Where a step's time goes, by torch's profiler, beside the plan's lines.

Rank 0 is watched. A line is the time of its operations, on the GPU where there is one; exchanges run beside products,
so lines may add up to more than the step. What none of them explains is waiting, and Python itself.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

from launcher.plan.profiled import profiled_steps
from launcher.training.checkpoint.storage import write_text
from launcher.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from launcher.plan.plan import Plan
    from launcher.training.ranks import Ranks
    from launcher.training.record import Record

FOLDER = "profile"
TRACE, SUMMARY = "trace.json.gz", "summary.json"
PRODUCTS, ATTENTION, MEMORY, EXCHANGES, OPTIMIZER, WAITING = (
    "matrix products", "attention", "memory-bound operations", "exchanges", "optimizer", "waiting and host",
)  # fmt: skip
_OPERATIONS = (
    (EXCHANGES, r"c10d|nccl|gloo|record_param_comms|fsdp::|all_reduce|all_gather|reduce_scatter|broadcast_coalesced"),
    (ATTENTION, r"scaled_dot_product|flash_att|efficient_attention|cudnn_attention"),
    (OPTIMIZER, r"adam|Optimizer|_foreach_"),
    (PRODUCTS, r"^aten::(mm|addmm|bmm|baddbmm|addbmm|_scaled_mm|_grouped_mm|mkldnn_linear)|gemm"),
    (MEMORY, r"^aten::|triton"),
)
"""Cause -> names of the operations and kernels it is made of; the first that fits counts."""
_PLANNED = (
    (PRODUCTS, r"matrix products|logits and loss|recompute"),
    (ATTENTION, r"attention"),
    (MEMORY, r"memory-bound operations|casting"),
    (EXCHANGES, r"exchange|parameter gathering|pipeline transfers"),
    (OPTIMIZER, r"optimizer"),
    (WAITING, r""),
)
"""Cause -> names of the plan's lines it is made of."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A cause of a step's time, seconds a step."""

    name: str
    measured: float
    planned: float


class Profiling:
    """Records the steps that the recipe names, and tells what was found. Other ranks than 0 do nothing."""

    def __init__(self, text: str | None, plan: Plan, ranks: Ranks, record: Record, output: Path) -> None:
        """``text``: ``training.profile``."""
        self.steps = (profiled_steps(text) if text and ranks.leads else None) or range(0)
        self.plan, self.ranks, self.record, self.folder = plan, ranks, record, output / FOLDER
        self.profiler: profile | None = None
        self.began = 0.0
        self.recorded = 0

    def before(self, step: int) -> None:
        """``step`` is about to begin. A run that resumes among the steps records the rest of them."""
        if step in self.steps and self.profiler is None:
            activities = [ProfilerActivity.CPU]
            activities += [ProfilerActivity.CUDA] if self.ranks.device.type == "cuda" else []
            self.profiler = profile(activities=activities)
            self.profiler.start()
            self.began = time.monotonic()

    def after(self, step: int) -> None:
        """``step`` is done."""
        if self.profiler is None:
            return
        self.recorded += 1
        if step != self.steps[-1]:
            return
        if self.ranks.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = (time.monotonic() - self.began) / self.recorded
        self.profiler.stop()
        self._tell(self.profiler, seconds, range(step - self.recorded + 1, step + 1))
        self.profiler = None

    def _tell(self, profiler: profile, seconds: float, steps: range) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(self.folder / TRACE))
        uses_gpu = self.ranks.device.type == "cuda"
        spent = {event.key: _seconds(event, uses_gpu=uses_gpu) / len(steps) for event in profiler.key_averages()}
        planned = {line.name: line.seconds for line in self.plan.time.lines}
        lines = tuple(compare(spent, planned, seconds=seconds))
        summary = {"steps": [steps[0], steps[-1]], "rank": 0, "step_seconds": seconds}
        text = json.dumps({**summary, "lines": [asdict(line) for line in lines]}, indent=2)
        write_text(self.folder / SUMMARY, text + "\n")
        self.record.say(f"profile of steps {steps[0]} to {steps[-1]} on rank 0, seconds a step:")
        for row in _table(lines, seconds, self.plan.time.step_seconds):
            self.record.say(row)
        self.record.say(f"  trace {self.folder / TRACE} (https://ui.perfetto.dev)")


def compare(spent: dict[str, float], planned: dict[str, float], *, seconds: float) -> Iterator[Line]:
    """Measured beside planned, by cause.

    Args:
        spent: Seconds a step of each operation, without those it calls.
        planned: The plan's lines.
        seconds: Of a whole step; what the operations do not explain is waiting.
    """
    measured, expected = _by_cause(spent, _OPERATIONS), _by_cause(planned, _PLANNED)
    explained = sum(value for cause, value in measured.items() if cause != WAITING)
    measured[WAITING] = max(0.0, seconds - explained)
    for cause, _ in _PLANNED:
        yield Line(name=cause, measured=measured[cause], planned=expected[cause])


def _by_cause(seconds: dict[str, float], causes: Iterable[tuple[str, str]]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for name, value in seconds.items():
        totals[next((cause for cause, words in causes if re.search(words, name)), WAITING)] += value
    return totals


def _seconds(event: Any, *, uses_gpu: bool) -> float:
    """Of an operation itself; the profiler counts microseconds."""
    return float(event.self_device_time_total if uses_gpu else event.self_cpu_time_total) / 1e6


def _table(lines: Iterable[Line], seconds: float, planned: float) -> Iterator[str]:
    yield f"  {'':<24} {'measured':>10} {'planned':>10}"
    for line in (*lines, Line(name="step", measured=seconds, planned=planned)):
        yield f"  {line.name:<24} {format_seconds(line.measured):>10} {format_seconds(line.planned):>10}"
