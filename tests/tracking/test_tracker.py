"""Ranks as real processes, each with the tracker that its place calls for, into a real MLflow database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from launcher.tracking import tracker as tracker_module
from launcher.tracking.spool import METRICS_FILE, read_rows
from launcher.tracking.tracker import open_tracker
from tests.tracking.conftest import Database, job_document
from tests.tracking.stub_server import OWN_RUN, stub_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RANK = """
import json, logging, os, sys, time
from pathlib import Path
from launcher.plan.planner import make_plan
from launcher.tracking.tracker import open_tracker
from tests.plan.recipes import TINY, recipe
logging.basicConfig(format="%(message)s")
folder, rank, first, last, ending = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
document = json.loads((folder / "job.json").read_text())
node, local_rank = divmod(rank, 2)
plan = make_plan(recipe(TINY))
tracker = open_tracker(document, output=folder / "output", rank=rank, node=node, local_rank=local_rank, plan=plan)
tracker.start(first_step=first, artifacts={"deepspeed_config.json": json.dumps({"seen": sys.argv[6:]})})
for step in range(first, last + 1):
    tracker.log(step, {"loss": 5 - step / 100, "learning_rate": 1e-3})
tracker.tag("note", " ".join(sys.argv[6:]))
run_file = folder / "output" / "mlflow_run.json"
while ending in ("hang", "nodes") and not (run_file.exists() and json.loads(run_file.read_text())["sent_bytes"]):
    time.sleep(0.05)                             # until MLflow has the run and its rows
if ending == "hang":
    print("ready", flush=True)
    time.sleep(120)
tracker.finish("FINISHED" if ending == "nodes" else ending)
print("mlflow" in sys.modules, Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())
"""


def start_rank(
    folder: Path,
    rank: int = 0,
    *,
    steps: tuple[int, int] = (1, 10),
    ending: str = "FINISHED",
    words: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    arguments = [str(folder), str(rank), str(steps[0]), str(steps[1]), ending, *words]
    return subprocess.Popen(
        [sys.executable, "-c", RANK, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as the local backend starts a rank
    )


def write_job(folder: Path, name: str, **keys: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(job_document(name, **keys)))
    return folder


def runs_named(mlflow: Any, database: Database, name: str) -> list[Any]:
    client = mlflow.MlflowClient(database.uri)
    experiment = client.get_experiment_by_name("launcher")
    return list(client.search_runs([experiment.experiment_id], f"attributes.run_name = '{name}'"))


@dataclass(frozen=True)
class FourRanks:
    """What four ranks on two nodes left behind, who carried secrets."""

    folder: Path
    run: Any
    runs: int
    outputs: list[str]
    errors: str


SECRETS = ("hf_TESTTESTTEST", "abc123xyz", "Bearer xyz", "k123456")
"""As in a report of tokens logged as parameters (github.com/unslothai/unsloth/pull/11100)."""


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory: pytest.TempPathFactory, database: Database, mlflow: Any) -> Iterator[FourRanks]:
    folder = tmp_path_factory.mktemp("four")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAUNCHER_HOME", str(database.home))
        variables = {
            "HF_TOKEN": SECRETS[0],
            "WANDB_TOKEN": SECRETS[1],
            "AZURE_STORAGE_KEY": SECRETS[3],
            "LEVEL": "INFO",
        }
        entry = {"script": "train.py", "arguments": ["--header", f"Authorization: {SECRETS[2]}"]}
        write_job(folder, "four", environment={"variables": variables}, entry=entry)
        ranks = [start_rank(folder, rank, ending="nodes", words=SECRETS) for rank in range(4)]
        told = [rank.communicate(timeout=120) for rank in ranks]
        found = runs_named(mlflow, database, "four")
        yield FourRanks(folder, found[0], len(found), [out for out, _ in told], "".join(err for _, err in told))


def test_four_ranks_make_one_run_and_all_end_well(four_ranks: FourRanks) -> None:
    assert four_ranks.runs == 1
    assert four_ranks.errors == ""
    assert four_ranks.run.info.status == "FINISHED"


def test_no_rank_imports_mlflow_and_none_leaves_a_process_behind(four_ranks: FourRanks) -> None:
    assert [output.strip() for output in four_ranks.outputs] == ["False []"] * 4


def test_the_run_holds_the_recipe_the_digests_and_the_artifacts(
    four_ranks: FourRanks, database: Database, mlflow: Any
) -> None:
    run, document = four_ranks.run, json.loads((four_ranks.folder / "job.json").read_text())

    assert run.data.params["model.hidden_size"] == "64"
    assert run.data.params["training.optimizer.learning_rate"] == "0.0003"
    assert run.data.params["model.tie_word_embeddings"] == "true"
    assert run.data.params["plan.world_size"] == "1"
    assert {name: run.data.tags[name] for name in ("recipe", "recipe_digest", "plan_digest", "attempt")} == {
        "recipe": "test",
        "recipe_digest": document["recipe_digest"],
        "plan_digest": document["plan_digest"],
        "attempt": "1",
    }
    files = {file.path for file in mlflow.MlflowClient(database.uri).list_artifacts(run.info.run_id)}
    assert files == {"recipe.json", "plan.json", "environment.json", "deepspeed_config.json"}
    assert run.info.artifact_uri.startswith((database.home / "mlartifacts").as_uri())


def test_every_step_is_logged_once(four_ranks: FourRanks, database: Database, mlflow: Any) -> None:
    history = mlflow.MlflowClient(database.uri).get_metric_history(four_ranks.run.info.run_id, "loss")

    assert [(point.step, point.value) for point in history] == [(step, 5 - step / 100) for step in range(1, 11)]


def test_system_metrics_of_both_nodes_are_in_the_one_run(four_ranks: FourRanks) -> None:
    names = {name for name in four_ranks.run.data.metrics if name.startswith("system/")}

    assert {"system/0/cpu_utilization_percentage", "system/1/cpu_utilization_percentage"} <= names
    assert {name.split("/")[1] for name in names} == {"0", "1"}


def test_no_secret_reaches_the_spool_mlflow_or_an_artifact(four_ranks: FourRanks, database: Database) -> None:
    read = [path for path in [*database.home.rglob("*"), *(four_ranks.folder / "output").rglob("*")] if path.is_file()]
    leaks = [(path.name, secret) for path in read for secret in SECRETS if secret.encode() in path.read_bytes()]

    assert leaks == []
    assert {"mlflow.db", "recipe.json", "deepspeed_config.json", METRICS_FILE} <= {path.name for path in read}
    assert four_ranks.run.data.params["environment.variables.HF_TOKEN"] == "[REDACTED]"
    assert four_ranks.run.data.params["environment.variables.LEVEL"] == "INFO"


def ended(mlflow: Any, database: Database, name: str, *, within_seconds: float = 60.0) -> str:
    """The status of a run, once it is there and not RUNNING any more."""
    deadline = time.monotonic() + within_seconds
    while not (found := runs_named(mlflow, database, name)) or found[0].info.status == "RUNNING":
        assert time.monotonic() < deadline, f"{name} has not ended"
        time.sleep(0.1)
    return str(found[0].info.status)


@pytest.mark.parametrize(
    ("number", "has_failed", "status"),
    [(signal.SIGKILL, False, "FAILED"), (signal.SIGTERM, False, "KILLED"), (signal.SIGTERM, True, "FAILED")],
    ids=["kill -9", "cancelled", "another rank failed"],
)
def test_a_rank_that_is_gone_without_a_word_leaves_a_run_that_has_ended(
    home: Path, database: Database, mlflow: Any, tmp_path: Path, number: signal.Signals, has_failed: bool, status: str
) -> None:
    name = f"gone-{number.name}-{has_failed}"
    rank = start_rank(write_job(tmp_path, name), ending="hang")
    assert rank.stdout is not None
    rank.stdout.readline()
    if has_failed:
        (tmp_path / "output" / "failed").touch()
    if number == signal.SIGKILL:
        os.kill(rank.pid, number)
    else:
        os.killpg(rank.pid, number)
    rank.communicate(timeout=30)

    assert ended(mlflow, database, name) == status


def test_a_resumed_job_goes_on_in_the_same_run(home: Path, database: Database, mlflow: Any, tmp_path: Path) -> None:
    # attempt 1 reaches step 35 with a checkpoint at 30 and is killed; attempt 2 goes on at 31 with another rate
    first, second = tmp_path / "first", tmp_path / "second"
    training = job_document()["recipe"]["training"]
    rate = {"optimizer": training["optimizer"] | {"learning_rate": 2e-4}}
    write_job(first, "resumed-1")
    start_rank(first, steps=(1, 35), ending="KILLED").communicate(timeout=60)
    assert ended(mlflow, database, "resumed-1") == "KILLED"
    [killed] = runs_named(mlflow, database, "resumed-1")
    checkpoints = str(first / "output" / "checkpoints")
    write_job(second, "resumed-2", attempt=2, resume_from=checkpoints, training=training | rate)
    _, errors = start_rank(second, steps=(31, 40)).communicate(timeout=60)

    [run] = runs_named(mlflow, database, "resumed-1")
    history = mlflow.MlflowClient(database.uri).get_metric_history(run.info.run_id, "loss")
    assert errors == ""
    assert run.info.status == "FINISHED"
    assert killed.info.run_id == run.info.run_id
    assert runs_named(mlflow, database, "resumed-2") == []
    assert [point.step for point in history] == [*range(1, 36), *range(31, 41)]
    assert run.data.params["training.optimizer.learning_rate"] == "0.0003"
    assert run.data.params["attempt2.training.optimizer.learning_rate"] == "0.0002"
    assert [row.step for row in read_rows(second / "output" / METRICS_FILE)] == list(range(1, 41))


def test_a_black_hole_costs_no_step_and_a_bounded_end(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(tracker_module.FINISH_SECONDS, "FINISHED", 2.0)
    with stub_server(tmp_path) as server:
        server.delay_seconds = 6.0
        tracker = open_tracker(job_document(tracking={"uri": server.uri}), output=tmp_path / "output", rank=0)
        tracker.start(first_step=1)
        seconds = []
        for step in range(1, 301):
            began = time.perf_counter()
            tracker.log(step, {"loss": 1.0})
            seconds.append(time.perf_counter() - began)
            time.sleep(0.005)
        began = time.monotonic()
        tracker.finish("FINISHED")
        waited = time.monotonic() - began

    assert sorted(seconds)[297] < 0.010  # the 99th of a hundred
    assert waited < 2.0 + 5.0 + 1.0
    assert len(read_rows(tmp_path / "output" / METRICS_FILE)) == 300
    assert "metrics.jsonl has it" in capfd.readouterr().err


def test_a_server_that_is_down_in_between_gets_every_step_once_in_the_end(home: Path, tmp_path: Path) -> None:
    with stub_server(tmp_path) as server:
        server.status = 503
        tracker = open_tracker(job_document(tracking={"uri": server.uri}), output=tmp_path / "output", rank=0)
        tracker.start(first_step=1)
        for step in range(1, 51):
            tracker.log(step, {"loss": 1.0})
        wait_until(lambda: server.refused > 0)
        server.status = 200
        wait_until(lambda: len(server.steps("loss")) == 50)
        server.status, refused = 429, server.refused
        tracker.log(51, {"loss": 1.0})
        wait_until(lambda: server.refused > refused)
        server.status = 200
        tracker.log(52, {"loss": 1.0})
        tracker.finish("FINISHED")

    assert server.steps("loss") == list(range(1, 53))
    assert server.bodies("runs/update")[-1]["status"] == "FINISHED"


def test_a_run_of_azure_ml_is_attached_to_and_no_experiment_is_touched(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stub_server(tmp_path) as server:
        monkeypatch.setenv("MLFLOW_RUN_ID", OWN_RUN)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "of-azure")
        tracker = open_tracker(job_document(tracking={"experiment": "mine"}), output=tmp_path / "output", rank=0)
        tracker.start(first_step=1)
        tracker.log(1, {"loss": 1.0})
        tracker.finish("FINISHED")

    methods = [method for method, _ in server.calls]
    assert not [method for method in methods if method.startswith("experiments") or method == "runs/create"]
    assert {body["run_id"] for body in server.bodies("runs/log-batch")} == {OWN_RUN}


def test_a_recipe_may_do_without_mlflow(home: Path, tmp_path: Path) -> None:
    tracker = open_tracker(job_document(tracking={"enabled": False}), output=tmp_path, rank=0)
    tracker.start(first_step=1)
    tracker.log(1, {"loss": 1.0})
    tracker.finish("FINISHED")

    assert [row.step for row in read_rows(tmp_path / METRICS_FILE)] == [1]
    assert not (tmp_path / "mlflow_run.json").exists()


def test_a_machine_that_cannot_start_another_process_trains_all_the_same(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    tracker = open_tracker(job_document(), output=tmp_path, rank=0)
    tracker.start(first_step=1)
    tracker.log(1, {"loss": 1.0})
    tracker.finish("FINISHED")

    assert len(read_rows(tmp_path / METRICS_FILE)) == 1
    assert caplog.text.count("MLflow does not follow this run") == 1


def wait_until(holds: Any, *, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
