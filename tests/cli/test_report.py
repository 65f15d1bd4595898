"""``launcher report``: from the rows a run left to planned beside measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from launcher.backends.local.backend import run_folder
from launcher.tracking.spool import Spool
from tests.cli.test_runs import state_at_the_end

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


@pytest.fixture
def handle(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of ten steps that has left its metrics: two seconds and half a nat a step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("")
    words = ("entry.script=script.py", "training.train_steps=10")
    submitted: str = cli("submit", "gpt/tiny", *words, "--json").document["handle"]
    state_at_the_end(cli, submitted)
    spool = Spool(run_folder(submitted).metrics)
    for step in range(1, 11):
        spool.append(step, {"loss": 8.0 - step / 2, "step_seconds": 2.0, "peak_memory_bytes": 2.0**30})
    spool.append(10, {"evaluation_loss": 3.25})
    spool.close()
    return submitted


def test_the_json_has_the_documented_names(cli: Cli, handle: str) -> None:
    report = cli("report", handle, "--json").document

    assert (report["handle"], report["state"]) == (handle, "Completed")
    measured = report["measured"]
    assert (measured["loss_first"], measured["loss_last"], measured["evaluation_loss"]) == (7.5, 3.0, 3.25)
    assert (measured["step_seconds"], measured["peak_memory_bytes"], measured["steps"]) == (2.0, 2.0**30, 10)
    assert "tokens_per_second" in measured
    assert set(report["planned"]) >= {"step_seconds", "tokens_per_second", "peak_memory_bytes"}


def test_planned_and_measured_stand_side_by_side(cli: Cli, handle: str) -> None:
    outcome = cli("report")

    assert outcome.code == 0
    assert outcome.err == f"latest is {handle}\n"
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines[0].startswith(f"Completed {handle} gpt/tiny on 1 x local_cpu")
    assert "planned measured ratio" in lines
    planned = cli("report", handle, "--json").document["planned"]["step_seconds"]
    (step,) = [line for line in lines if line.startswith("step ")]
    assert f"] 2 s {2 / planned:.2f}" in step
    assert "training loss 7.500 -> 3.000 (falls by 4.500 nats)" in lines
    assert "evaluation loss 3.250 at step 10" in lines


def test_a_run_without_metrics_is_reported_as_such(cli: Cli, handle: str) -> None:
    run_folder(handle).metrics.unlink()

    outcome = cli("report", handle)

    assert outcome.code == 0
    assert "left no metrics" in " ".join(outcome.out.split())


def test_the_report_is_written_as_one_page(cli: Cli, handle: str, tmp_path: Path) -> None:
    page = tmp_path / "run.html"

    outcome = cli("report", handle, "--html", page, "--json")

    assert outcome.code == 0
    assert json.loads(outcome.out)["handle"] == handle
    assert f"written to {page}" in outcome.err
    text = page.read_text(encoding="utf-8")
    assert handle in text
    assert "http://" not in text.replace("http://www.w3.org", "")  # nothing is fetched when it is opened
    assert "https://" not in text


def test_a_page_that_cannot_be_written_is_a_usage_error(cli: Cli, handle: str, tmp_path: Path) -> None:
    outcome = cli("report", handle, "--html", tmp_path / "no-such-folder" / "run.html")

    assert outcome.code == 2
    assert "cannot write" in outcome.err
