"""Tasks of lm-evaluation-harness, with data of this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from launcher.errors import UsageError
from launcher.training.evaluate import run_tasks
from launcher.training.weights import open_checkpoint
from tests.training.runs import tiny_recipe, train

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
pytestmark = pytest.mark.filterwarnings("default")  # the harness's own


def test_a_task_of_ones_own_is_scored_by_hand(tmp_path: Path) -> None:
    run = train(tiny_recipe(training={"train_steps": 2, "evaluation_batches": 0}), tmp_path / "run")
    task = {
        "task": "parity", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "q.jsonl")}},
        "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}", "doc_to_choice": ["yes", "no"],
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }  # fmt: skip
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "parity.yaml").write_text(json.dumps(task))
    # One question asked twice, with both answers: whatever the model prefers, it is right once.
    rows = [{"question": "Is it? ", "answer": answer} for answer in (0, 1)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    checkpoint = open_checkpoint(run.output / "checkpoints")
    (score,) = run_tasks(checkpoint, ["parity"], folder=tmp_path / "tasks")
    assert (score.task, score.metric, score.value) == ("parity", "acc", 0.5)
    with pytest.raises(UsageError, match="no task party"):
        run_tasks(checkpoint, ["party"], folder=tmp_path / "tasks")
