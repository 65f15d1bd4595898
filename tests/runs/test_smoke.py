"""Rehearsals on real ranks: each trains, saves, loses a rank to kill -9, and resumes as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.backends.local.backend import run_folder
from launcher.compose.composer import compose
from launcher.compose.library import recipe_names
from launcher.runs.smoke import SmokeReport, encode, resume_faults, smoke
from launcher.tracking.spool import all_rows
from tests.backends.conftest import left_running

pytest.importorskip("torch")


def rehearse(*words: str, processes: int = 8) -> SmokeReport:
    return smoke(compose(words).recipe, processes=processes, root=Path.cwd())


@pytest.mark.parametrize(
    "words",
    [("gpt/tiny",), ("gpt/13b",), ("gpt/6.7b",)],
    ids=["ddp", "deepspeed_zero2", "fsdp_zero2"],
)
def test_a_recipe_of_each_engine_survives_its_rehearsal(words: tuple[str, ...]) -> None:
    report = rehearse(*words)

    done = report.rehearsal
    assert (report.verdict, done.reason) == ("passed", None)
    assert report.rehearsed == "tensor 1 x pipeline 1 x context 1 x data 2 = 2"
    assert done.loss_first is not None
    assert done.loss_first == pytest.approx(6.24, abs=0.15)  # ln 512 = 6.238: it knows nothing yet
    assert done.loss_last is not None
    assert done.loss_last < done.loss_first - 0.5
    assert done.checkpoint_step in (7, 14)
    assert done.compared_steps[0] == done.checkpoint_step + 1
    assert [phase.name for phase in done.phases] == ["start, train, save", "kill -9 one rank", "start, resume, finish"]
    broken, resumed = done.handles
    steps = [row.step for row in all_rows(run_folder(resumed).metrics) if "loss" in row.metrics]
    assert steps[-(20 - done.checkpoint_step) :] == list(range(done.checkpoint_step + 1, 21))
    assert left_running(broken) == left_running(resumed) == ()


def test_a_rehearsal_that_fails_says_why_and_where_to_read_more() -> None:
    # Python does not find itself there: the quickest death of a rank.
    report = rehearse("gpt/tiny", "environment.variables.PYTHONHOME=/nowhere")

    assert report.verdict == "failed"
    assert report.rehearsal.reason is not None
    assert report.rehearsal.reason.startswith("the run is Failed before it could be interrupted: rank ")
    assert report.rehearsal.log is not None
    assert "No module named 'encodings'" in Path(report.rehearsal.log).read_text(encoding="utf-8")
    assert [phase.name for phase in report.rehearsal.phases] == ["start, train, save"]
    assert encode(report)["reason"] == report.rehearsal.reason


def test_a_rehearsal_beyond_its_time_is_ended() -> None:
    report = smoke(compose(["gpt/tiny"]).recipe, processes=1, root=Path.cwd(), timeout_seconds=0.2)

    assert report.rehearsal.reason is not None
    assert "timed out after" in report.rehearsal.reason
    assert left_running(report.rehearsal.handles[0]) == ()


LOSSES = {step: 6.0 - step / 10 for step in range(1, 11)}


def faults(after: dict[int, float], *, checkpoint: int = 4, begun: int = 5) -> list[str]:
    before = {step: LOSSES[step] for step in range(1, 7)}
    return list(resume_faults(before, after, checkpoint=checkpoint, begun=begun, steps=10))


def test_equal_falling_losses_are_no_fault() -> None:
    assert faults(LOSSES) == []


def test_a_loss_that_resuming_changed_in_its_last_bit_is_a_fault() -> None:
    other = LOSSES | {6: LOSSES[6] + 2**-50}

    assert faults(other) == [f"step 6 had loss {LOSSES[6]!r} before the kill and {other[6]!r} after resuming"]


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        (LOSSES | {10: 5.9}, "the loss did not fall: 5.9000 at step 1, 5.9000 at step 10"),
        (LOSSES | {8: float("nan")}, "a loss is not finite"),
        ({step: loss for step, loss in LOSSES.items() if step != 8}, "no loss of step 8 was recorded"),
    ],
)
def test_a_curve_that_does_not_show_learning_is_a_fault(after: dict[int, float], fault: str) -> None:
    assert faults(after) == [fault]


def test_a_run_that_starts_over_has_not_resumed_however_equal_its_losses() -> None:
    assert faults(LOSSES, begun=1) == ["resumed with step 1 and not with step 5"]


def test_a_rehearsal_that_took_no_step_twice_proves_nothing() -> None:
    assert faults(LOSSES, checkpoint=6, begun=7) == ["no step was taken twice, so resuming was not compared"]


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_survives_its_rehearsal_in_two_minutes(name: str) -> None:
    report = rehearse(name)

    assert report.rehearsal.reason is None, report.rehearsal
    assert report.seconds < 120
