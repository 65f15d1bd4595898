"""The whole way through the command line: submitted, trained, followed, preempted, carried on, registered, fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.emulated import SETTINGS

if TYPE_CHECKING:
    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytest.importorskip("torch", reason="the local extra is not installed: jobs train on this machine")

pytestmark = pytest.mark.timeout(1200)  # minutes on a machine that does other things

ROOT = Path(__file__).parents[2]
RECIPE = (
    "gpt/tiny", "cluster=azureml_cpu", "cluster.instance_count=2", "model.hidden_size=32",
    "model.num_attention_heads=2", "training.seq_length=32", "training.global_batch_size=4",
    "training.micro_batch_size=2", "training.evaluation_batches=1",
)  # fmt: skip


def launcher(*arguments: str, cwd: Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        (sys.executable, "-m", "launcher", *arguments),
        cwd=cwd, capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == expected, done.stdout + done.stderr
    return done


def answer(*arguments: str, cwd: Path) -> Any:
    return json.loads(launcher(*arguments, "--json", cwd=cwd).stdout)


def losses(inside: Inside, run: str) -> list[int]:
    """Steps whose loss MLflow has, in the order they came."""
    points = inside.emulator._mlflow.runs.get(run)
    return [] if points is None else [int(point["step"]) for point in points.metrics.get("loss", [])]


def test_a_recipe_trains_on_two_nodes_and_everything_it_leaves_can_be_had(inside: Inside, tmp_path: Path) -> None:
    inside.settings(processes=SETTINGS.processes)

    followed = launcher("submit", *RECIPE, "training.train_steps=12", "--follow", cwd=tmp_path)

    handle = answer("status", cwd=tmp_path)["handle"]
    run = handle.removeprefix("azureml:")
    assert "Completed" in followed.stdout
    assert losses(inside, run) == list(range(1, 13))
    assert "step 12/12" in launcher("logs", handle, "--rank", "0", cwd=tmp_path).stdout
    assert answer("diagnose", handle, cwd=tmp_path)["kind"] == "completed"

    model = answer("models", "register", handle, "--name", "tiny", cwd=tmp_path)
    assert (model["version"], model["tags"]["step"], model["tags"]["run"]) == ("1", "12", run)

    (listed,) = answer("models", "list", cwd=tmp_path)["models"]
    assert (listed["name"], listed["version"], listed["tags"]["run"]) == ("tiny", "1", run)

    launcher("download", handle, "--newest", "--to", str(tmp_path / "got"), cwd=tmp_path)
    names = {path.name for path in (tmp_path / "got").rglob("*") if path.is_file()}
    assert {"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors", "completed.json"} <= names

    again = answer("submit", *RECIPE, "training.train_steps=12", cwd=tmp_path)
    assert (again["handle"], again["was_there"], again["state"]) == (handle, True, "Completed")
    assert inside.accepted(run) == [run]


def test_a_preempted_run_is_carried_to_its_end_in_one_mlflow_run_with_no_step_twice(
    inside: Inside, tmp_path: Path
) -> None:
    inside.settings(processes=SETTINGS.processes)
    steps = 60
    recipe = (*RECIPE, f"training.train_steps={steps}", "checkpoint.interval_steps=10", "training.seed=8")
    handle = answer("submit", *recipe, cwd=tmp_path)["handle"]
    run = handle.removeprefix("azureml:")
    watching = subprocess.Popen(
        (sys.executable, "-m", "launcher", "watch", handle, "--resubmit", "2", "--json"),
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    deadline = time.monotonic() + 600
    while len(losses(inside, run)) < 5:
        assert time.monotonic() < deadline, inside.ask("jobs")
        time.sleep(0.05)

    inside.ask("preempt", name=run)

    said = json.loads(watching.communicate(timeout=600)[0])
    following = f"{run.removesuffix('-1')}-2"
    assert (watching.returncode, said["state"], said["handle"]) == (0, "Completed", f"azureml:{following}")
    assert {name: job["state"] for name, job in inside.ask("jobs").items() if name in (run, following)} == {
        run: "Failed",
        following: "Completed",
    }
    assert losses(inside, run) == list(range(1, steps + 1))
    assert losses(inside, following) == []


@pytest.mark.slow
def test_a_run_that_has_ended_is_continued_by_another_recipe_from_its_checkpoint(
    inside: Inside, tmp_path: Path
) -> None:
    inside.settings(processes=SETTINGS.processes)
    launcher("submit", *RECIPE, "training.train_steps=4", "training.seed=9", "--follow", cwd=tmp_path)
    parent = answer("status", cwd=tmp_path)["handle"]

    longer = (*RECIPE, "training.train_steps=8", "training.seed=9", "--resume", parent)
    launcher("submit", *longer, "--follow", cwd=tmp_path)

    child = answer("status", cwd=tmp_path)["handle"]
    assert child != parent
    assert "resumed after step 4" in launcher("logs", child, "--rank", "0", cwd=tmp_path).stdout


def test_a_script_of_a_teams_own_runs_with_its_arguments_and_its_failure_is_told(
    inside: Inside, tmp_path: Path
) -> None:
    inside.settings(processes=SETTINGS.processes)
    (tmp_path / "mine.py").write_text("import os, sys\nprint(os.environ['RANK'], sys.argv[1:])\nraise KeyError('lr')\n")
    script = ("entry.script=mine.py", "entry.arguments=['--note','a b']")

    launcher("submit", *RECIPE, *script, "--follow", cwd=tmp_path, expected=1)

    handle = answer("status", cwd=tmp_path)["handle"]
    found = answer("diagnose", handle, cwd=tmp_path)
    assert (found["kind"], found["what"], found["may_pass"]) == ("user_code", "KeyError: 'lr'", False)
    assert "0 ['--note', 'a b']" in launcher("logs", handle, "--rank", "0", cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_run_that_passes_its_budget_is_told_to_save_and_end(inside: Inside, tmp_path: Path) -> None:
    inside.settings(processes=SETTINGS.processes)
    dear = ("cluster.price_dollars_per_hour=1000000", "limits.budget_dollars=1", "training.train_steps=100000")
    submitted = answer("submit", *RECIPE, *dear, "--over-budget", cwd=tmp_path)

    watched = launcher("watch", submitted["handle"], cwd=tmp_path, expected=5)

    assert "was told to save and end" in watched.stderr
    deadline = time.monotonic() + 60
    while answer("status", submitted["handle"], cwd=tmp_path)["state"] != "Canceled":
        assert time.monotonic() < deadline
    launcher("download", submitted["handle"], "--newest", "--to", str(tmp_path / "got"), cwd=tmp_path)
    assert list((tmp_path / "got" / "checkpoints").glob("step-*/manifest.json"))
