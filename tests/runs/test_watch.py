from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from launcher.backends.local.backend import run_folder
from launcher.errors import NoSuchRunError
from launcher.runs import watch
from tests.runs.conftest import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.backends.local.backend import LocalBackend
    from launcher.job.spec import JobSpec

    ScriptJob = Callable[..., JobSpec]

TEN_STEPS = """
    import json, os, sys, time
    if os.environ["RANK"] == "0":
        with open(sys.argv[1] + "/metrics.jsonl", "a") as file:
            for step in range(1, 11):
                time.sleep(0.1)
                metrics = {"loss": 5 - step / 10, "learning_rate": 0.001, "tokens_per_second": 640.0}
                print(json.dumps({"step": step, "time": time.time(), "metrics": metrics}), file=file, flush=True)
                if step == 5:
                    os.makedirs(sys.argv[1] + "/checkpoints")
                    os.rename(sys.argv[2], sys.argv[1] + "/checkpoints/step-00000005-abcdef")
"""


def test_progress_goes_from_submission_to_the_last_step(
    backend: LocalBackend, script_job: ScriptJob, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "saved", step=5)
    job = script_job(TEN_STEPS, "{output}", str(tmp_path / "saved"), plan={"batch": {"train_steps": 10}})
    handle = backend.submit(job).handle

    seen = list(watch.progress(handle, poll_seconds=0.02))

    steps = [now.step for now in seen if now.step is not None]
    assert (steps[0], steps[-1], seen[-1].state) == (1, 10, "Completed")
    assert steps == sorted(steps)
    assert (seen[-1].loss, seen[-1].learning_rate, seen[-1].tokens_per_second) == (4.0, 0.001, 640.0)
    assert (seen[-1].total_steps, seen[-1].last_checkpoint_step, seen[-1].eta_seconds) == (10, 5, None)
    # At step 5 five steps of about a tenth of a second are left; the machine may be slow, but not tenfold.
    [halfway] = [now.eta_seconds for now in seen if now.step == 5][:1]
    assert halfway is not None
    assert 0.2 < halfway < 5
    names = [name for name, _ in seen[-1].stages]
    moments = [moment for _, moment in seen[-1].stages]
    assert (names, moments) == (["started", "first step"], sorted(moments))


def test_a_watcher_that_comes_late_sees_the_end(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("raise SystemExit('boom')", ranks=1)).handle
    watch.wait(handle, timeout_seconds=20)

    [end] = watch.progress(handle)

    assert (end.state, end.reason, end.step) == ("Failed", "rank 0 exited with code 1: boom", None)


def test_time_stands_still_once_a_run_has_ended(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("", ranks=1)).handle
    watch.wait(handle, timeout_seconds=20)

    first, second = (next(watch.progress(handle)).elapsed_seconds for _ in range(2))

    assert first == second


def test_a_restart_measures_the_pace_anew(backend: LocalBackend, script_job: ScriptJob) -> None:
    job = script_job("import time; time.sleep(60)", ranks=1, plan={"batch": {"train_steps": 4}})
    handle = backend.submit(job).handle
    rows = [(1, 100.0, {"loss": 3.0}), (2, 101.0, {"loss": 2.0}), (2, 900.0, {}), (3, 1000.0, {"loss": 1.0})]
    lines = (json.dumps({"step": step, "time": time, "metrics": metrics}) for step, time, metrics in rows)
    run_folder(handle).metrics.write_text("\n".join(lines) + "\n")

    now = next(watch.progress(handle))

    assert (now.step, now.loss, now.eta_seconds) == (3, 1.0, None)


def test_waiting_gives_up_after_the_time_limit(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("import time; time.sleep(60)", ranks=1)).handle

    assert not watch.wait(handle, timeout_seconds=0.3).is_terminal


def test_an_unknown_run_cannot_be_watched() -> None:
    with pytest.raises(NoSuchRunError):
        watch.progress("local:nothing")
