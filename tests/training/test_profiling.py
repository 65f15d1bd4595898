"""``training.profile``: a trace of the steps that were named, and their time by cause beside the plan's."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from launcher.training.profiling import compare
from tests.training.layouts import FSDP, laid_out
from tests.training.runs import train

if TYPE_CHECKING:
    from pathlib import Path


def test_named_steps_are_recorded_and_told_beside_the_plan(tmp_path: Path) -> None:
    training = {"train_steps": 6, "profile": "steps:3-4", "evaluation_batches": 0}
    run = train(laid_out(FSDP["fsdp"], "fsdp", training=training), tmp_path / "run")
    folder = run.output / "profile"
    summary = json.loads((folder / "summary.json").read_text())
    lines = {line["name"]: line["measured"] for line in summary["lines"]}
    assert summary["steps"] == [3, 4]
    assert min(lines[name] for name in ("matrix products", "attention", "exchanges", "optimizer")) > 0
    assert max(lines.values()) < summary["step_seconds"]
    assert "profile of steps 3 to 4 on rank 0" in run.logs[0]
    assert run.logs[0].index("step 4/6") < run.logs[0].index("matrix products") < run.logs[0].index("step 5/6")
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    updates = [event for event in events if event.get("name", "").startswith("Optimizer.step#AdamW")]
    assert len({event["ts"] for event in updates if event["ph"] == "X"}) == 2  # one a step


def test_operations_and_lines_of_the_plan_are_the_same_causes() -> None:
    spent = {
        "aten::addmm": 0.3, "aten::_scaled_dot_product_flash_attention_backward": 0.2, "aten::gelu": 0.1,
        "nccl:all_reduce": 0.05, "aten::_fused_adamw_": 0.04, "cudaDeviceSynchronize": 9.0,
    }  # fmt: skip
    planned = {"matrix products": 0.2, "logits and loss": 0.1, "attention": 0.2, "memory-bound operations": 0.1,
               "parameter gathering": 0.01, "tensor-parallel exchange": 0.02, "optimizer": 0.03, "pipeline bubble": 0.4,
               }  # fmt: skip
    found = {line.name: (line.measured, line.planned) for line in compare(spent, planned, seconds=1.0)}
    assert found == {
        "matrix products": (0.3, pytest.approx(0.3)),
        "attention": (0.2, 0.2),
        "memory-bound operations": (0.1, 0.1),
        "exchanges": (0.05, pytest.approx(0.03)),
        "optimizer": (0.04, 0.03),
        "waiting and host": (pytest.approx(0.31), 0.4),
    }
