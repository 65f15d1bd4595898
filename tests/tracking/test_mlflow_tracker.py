from __future__ import annotations

import json
import math
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from launcher.tracking.courier import Courier, Outbox
from launcher.tracking.mlflow_tracker import MlflowRun, RefusedError, UnavailableError, open_run
from launcher.tracking.spool import METRICS_FILE, Row, Spool
from launcher.tracking.target import Target, resolve_target
from tests.tracking.stub_server import OWN_RUN, stub_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tracking.conftest import Database

PARAMETERS_210 = {f"model.key_{index:03}": str(index) for index in range(10)} | {
    f"tags.key_{index:03}": str(index) for index in range(200)
}


class Recorder:
    """A real client that also notes the sizes of the batches that pass through."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.batches: list[dict[str, int]] = []

    def log_batch(self, run_id: str, **entities: Any) -> None:
        self.batches.append({name: len(items) for name, items in entities.items()})
        self._client.log_batch(run_id, **entities)


def target(database: Database, name: str = "test") -> Target:
    return Target(uri=database.uri, experiment="launcher", name=name)


@pytest.fixture
def client(mlflow: Any, database: Database, home: Path) -> Any:
    return mlflow.MlflowClient(database.uri)


def test_two_runs_at_once_make_one_whole_database(database: Database) -> None:
    assert database.exit_codes == (0, 0), database.errors
    assert {path.name for path in database.home.iterdir()} >= {"mlflow.db"}
    assert not (database.home / "mlflow.unfinished").exists()


def test_azure_ml_gets_two_hundred_parameters_a_hundred_at_a_time(client: Any, database: Database) -> None:
    run = open_run(target(database), run_id=None)
    recorder = Recorder(client)
    azure = Target(uri="azureml://westeurope.api.azureml.ms/mlflow/v2.0", experiment="launcher", name="test")
    on_azure = MlflowRun(recorder, azure, client.get_run(run.run_id))

    assert on_azure.log_parameters(PARAMETERS_210, attempt=1) == 10
    logged = client.get_run(run.run_id).data.params
    assert recorder.batches == [{"params": 100}, {"params": 100}]
    assert len(logged) == 200
    assert {f"model.key_{index:03}" for index in range(10)} <= set(logged)


def test_a_server_of_ones_own_takes_all_parameters(client: Any, database: Database) -> None:
    run = open_run(target(database), run_id=None)

    assert run.log_parameters(PARAMETERS_210, attempt=1) == 0
    assert client.get_run(run.run_id).data.params == PARAMETERS_210


def test_the_number_of_parameters_left_out_is_a_tag(
    client: Any, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Target, "is_azure", property(lambda _: True))
    Courier(tmp_path, target=target(database), attempt=1, leads=True).deliver(Outbox(parameters=dict(PARAMETERS_210)))

    run_id = json.loads((tmp_path / "mlflow_run.json").read_text())["run_id"]
    assert client.get_run(run_id).data.tags["parameters_dropped"] == "10"
    assert "10 parameters are over this service's limit" in caplog.text


def test_a_changed_parameter_is_logged_under_its_attempt_and_an_equal_one_once(client: Any, database: Database) -> None:
    first = open_run(target(database), run_id=None)
    first.log_parameters({"lr": "1e-4", "layers": "2"}, attempt=1)
    again = open_run(target(database), run_id=first.run_id)
    for _ in range(2):
        again.log_parameters({"lr": "2e-4", "layers": "2"}, attempt=2)

    assert again.run_id == first.run_id
    assert client.get_run(first.run_id).data.params == {"lr": "1e-4", "layers": "2", "attempt2.lr": "2e-4"}


def test_a_run_that_was_deleted_is_not_continued(client: Any, database: Database) -> None:
    first = open_run(target(database), run_id=None)
    client.delete_run(first.run_id)

    assert open_run(target(database), run_id=first.run_id).run_id != first.run_id
    assert open_run(target(database), run_id="0" * 32).run_id not in ("0" * 32, first.run_id)


def test_a_loss_that_is_no_number_is_logged_as_one_that_is_not(client: Any, database: Database) -> None:
    run = open_run(target(database), run_id=None)
    run.log_rows([Row(step=1, time=1.0, attempt=1, metrics={"loss": math.nan, "gradient_norm": math.inf})])

    [loss] = client.get_metric_history(run.run_id, "loss")
    [norm] = client.get_metric_history(run.run_id, "gradient_norm")
    assert math.isnan(loss.value)
    assert norm.value == 1.7976931348623157e308  # SQL has no infinity: MLflow stores the largest double


def test_rows_are_sent_a_thousand_metrics_at_a_time_and_none_twice(
    client: Any, database: Database, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / METRICS_FILE)
    for step in range(1, 601):
        spool.append(step, {"loss": 1.0, "learning_rate": 0.1})
    courier = Courier(tmp_path, target=target(database), attempt=1, leads=True)
    courier.deliver(Outbox())
    courier.deliver(Outbox())
    Courier(tmp_path, target=target(database), attempt=2, leads=True).deliver(Outbox())

    run_id = json.loads((tmp_path / "mlflow_run.json").read_text())["run_id"]
    assert [point.step for point in client.get_metric_history(run_id, "loss")] == list(range(1, 601))


def test_what_mlflow_will_never_take_is_told_and_does_not_hold_up_the_rest(
    client: Any, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path / METRICS_FILE)
    spool.append(1, {"loss; drop table": 1.0})
    courier = Courier(tmp_path, target=target(database), attempt=1, leads=True)
    courier.deliver(Outbox())
    spool.append(2, {"loss": 1.0})
    courier.deliver(Outbox(ending="FINISHED"))

    run_id = json.loads((tmp_path / "mlflow_run.json").read_text())["run_id"]
    assert [point.step for point in client.get_metric_history(run_id, "loss")] == [2]
    assert client.get_run(run_id).info.status == "FINISHED"
    assert caplog.text.count("MLflow refuses a part of this run") == 1


def test_a_store_of_files_that_is_down_holds_up_nothing_but_files(
    client: Any, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = tmp_path / "store"
    client.create_experiment("elsewhere", artifact_location=there.as_uri())
    there.write_text("in the way of the folder")
    file = tmp_path / "recipe.json"
    file.write_text("{}")
    outbox = Outbox(artifacts=deque([str(tmp_path / "gone.json"), str(file)]), ending="FINISHED")
    courier = Courier(
        tmp_path, target=Target(uri=database.uri, experiment="elsewhere", name="test"), attempt=1, leads=True
    )

    with pytest.raises(UnavailableError):
        courier.deliver(outbox)
    run_id = json.loads((tmp_path / "mlflow_run.json").read_text())["run_id"]
    assert client.get_run(run_id).info.status == "FINISHED"
    there.unlink()
    courier.deliver(outbox)
    assert [found.path for found in client.list_artifacts(run_id)] == ["recipe.json"]
    assert "gone.json is gone" in caplog.text


def test_a_password_in_the_address_is_in_no_message_and_no_file(
    mlflow: Any, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with stub_server(tmp_path) as server:
        address = server.uri.replace("http://", "http://me:hunter22@")
        there = Target(uri=address, experiment="launcher", name="test")
        server.status = 401
        with pytest.raises(UnavailableError) as refusal:
            open_run(there, run_id=None)
        server.status = 200
        Courier(tmp_path, target=there, attempt=1, leads=True).deliver(Outbox())

    assert "hunter22" not in str(refusal.value)
    assert json.loads((tmp_path / "mlflow_run.json").read_text())["uri"] == server.uri


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_an_answer_that_may_change_is_worth_another_try(mlflow: Any, home: Path, tmp_path: Path, status: int) -> None:
    with stub_server(tmp_path) as server:
        server.status = status
        with pytest.raises(UnavailableError):
            open_run(Target(uri=server.uri, experiment="launcher", name="test"), run_id=None)


def test_an_experiment_that_was_deleted_is_refused_in_one_line(client: Any, database: Database) -> None:
    experiment = client.create_experiment("deleted")
    client.delete_experiment(experiment)

    with pytest.raises(RefusedError):
        open_run(Target(uri=database.uri, experiment="deleted", name="test"), run_id=None)


WANTED = {"uri": None, "experiment": "launcher", "name": "tiny-1"}


def test_a_run_without_any_setting_is_tracked_beside_the_other_runs_of_this_machine(home: Path) -> None:
    assert resolve_target(WANTED, {}).uri == f"sqlite:///{home}/mlflow.db"


def test_the_recipe_names_the_server_before_the_environment_does() -> None:
    environment = {"MLFLOW_TRACKING_URI": "http://of-the-shell"}

    assert resolve_target(WANTED, environment).uri == "http://of-the-shell"
    assert resolve_target(WANTED | {"uri": "http://of-the-recipe"}, environment).uri == "http://of-the-recipe"


def test_a_run_in_the_environment_is_attached_to_where_it_lives() -> None:
    environment = {"MLFLOW_RUN_ID": OWN_RUN, "MLFLOW_TRACKING_URI": "azureml://west/mlflow"}
    found = resolve_target(WANTED | {"uri": "http://of-the-recipe"}, environment)

    assert (found.uri, found.attached_run_id, found.is_azure) == ("azureml://west/mlflow", OWN_RUN, True)
