"""Runs read back from MLflow, as far as an audit of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from launcher.cli.main import run
from launcher.recipe import codec
from launcher.tracking.mlflow_runs import tracked_runs
from launcher.tracking.mlflow_tracker import open_run
from launcher.tracking.spool import Row
from launcher.tracking.target import Target
from tests.plan.recipes import LLAMA2_7B, on, recipe

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.tracking.conftest import Database

SECONDS = (9.0, 2.0, 2.0, 2.2, 2.0, 2.0)
"""The first step compiles and fills caches."""


def tracked(database: Database, name: str, folder: Path, document: dict[str, Any] | None) -> None:
    """A run of the experiment "audited" with six steps, and its recipe where there is one."""
    opened = open_run(Target(uri=database.uri, experiment="audited", name=name), run_id=None)
    opened.log_rows(
        Row(step=step, time=1e9 + step, attempt=1, metrics={"step_seconds": seconds, "peak_memory_bytes": 50e9})
        for step, seconds in enumerate(SECONDS, start=1)
    )
    if document is not None:
        (folder / "recipe.json").write_text(json.dumps(document))
        opened.log_artifact(folder / "recipe.json")
    opened.end("FINISHED")


def test_ones_own_runs_are_audited(
    database: Database, home: Path, mlflow: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = recipe(LLAMA2_7B, cluster=on("Standard_ND96amsr_A100_v4"))
    tracked(database, "ours", tmp_path, codec.encode(asked))
    tracked(database, "foreign", tmp_path, None)

    code = run(["audit", "mlflow:audited", "--json"])
    document = json.loads(capsys.readouterr().out)

    assert code == 0
    (row,) = document["rows"]
    assert (row["id"], row["table"], row["measured_step_seconds"]) == ("ours", "mlflow:audited", 2.0)
    assert row["measured_memory_gib"] == 50e9 / 2**30
    assert document["excluded"] == [["foreign", "no recipe.json among its artifacts: not a run of ours"]]


def test_an_experiment_that_is_not_there_is_none(home: Path, mlflow: Any) -> None:
    assert tracked_runs("nobody", {}) is None
