from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.tracking.resumption import RUN_FILE, inherit
from launcher.tracking.spool import METRICS_FILE, Spool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """The output folder of a job that logged one step."""
    Spool(tmp_path / "parent" / METRICS_FILE).append(1, {"loss": 1.0})
    (tmp_path / "parent" / RUN_FILE).write_text('{"run_id": "a"}')
    return tmp_path / "parent"


@pytest.mark.parametrize("checkpoint", ["checkpoints", "checkpoints/step-000030"])
def test_a_resumed_job_takes_over_rows_and_run_of_the_one_before(parent: Path, tmp_path: Path, checkpoint: str) -> None:
    inherit(tmp_path / "child", str(parent / checkpoint))

    for name in (METRICS_FILE, RUN_FILE):
        assert (tmp_path / "child" / name).read_bytes() == (parent / name).read_bytes()


def test_a_job_that_has_rows_of_its_own_keeps_them(parent: Path, tmp_path: Path) -> None:
    Spool(tmp_path / "child" / METRICS_FILE).append(7, {"loss": 1.0})
    before = (tmp_path / "child" / METRICS_FILE).read_bytes()
    inherit(tmp_path / "child", str(parent / "checkpoints"))

    assert (tmp_path / "child" / METRICS_FILE).read_bytes() == before
    assert not (tmp_path / "child" / RUN_FILE).exists()


@pytest.mark.parametrize(
    "resume_from", [None, "azureml://datastores/blob/paths/run/checkpoints", "/absent/checkpoints"]
)
def test_a_job_that_comes_from_nowhere_begins_empty(tmp_path: Path, resume_from: str | None) -> None:
    inherit(tmp_path / "child", resume_from)

    assert not (tmp_path / "child").exists()
