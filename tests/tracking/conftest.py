"""One MLflow database for all tests of a session, made as two runs at once would make it."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from launcher.plan.planner import make_plan
from launcher.recipe import codec
from tests.plan.recipes import TINY, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREATE = """
from launcher.tracking.mlflow_tracker import create_database
from launcher.tracking.target import default_database
create_database(default_database())
"""


@dataclass(frozen=True)
class Database:
    """A home of the launcher with an MLflow database in it, and how the two processes fared that made it at once."""

    home: Path
    uri: str
    exit_codes: tuple[int, int]
    errors: str


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    home = tmp_path_factory.mktemp("home")
    environment = os.environ | {"LAUNCHER_HOME": str(home)}
    processes = [
        subprocess.Popen([sys.executable, "-c", CREATE], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = "".join(process.communicate()[1] for process in processes)
    codes = (processes[0].returncode, processes[1].returncode)
    return Database(home=home, uri=f"sqlite:///{home / 'mlflow.db'}", exit_codes=codes, errors=errors)


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run and no server from outside; no telemetry from MLflow inside the tests."""
    for name in ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


@pytest.fixture
def home(database: Database, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The launcher's home is the one with the database."""
    monkeypatch.setenv("LAUNCHER_HOME", str(database.home))
    return database.home


@pytest.fixture(scope="session")
def mlflow() -> Iterator[Any]:
    """MLflow inside the tests' own process. Its import and its SQLAlchemy pools warn of their own affairs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

        yield mlflow


def job_document(
    name: str = "tiny-1", *, attempt: int = 1, resume_from: str | None = None, **keys: Any
) -> dict[str, Any]:
    """A job.json of a small recipe; ``keys`` replace whole sections of its recipe."""
    asked = codec.encode(recipe(TINY)) | keys
    plan = make_plan(recipe(TINY))
    return {
        "schema_version": 1, "name": name, "attempt": attempt, "recipe": asked, "recipe_digest": plan.recipe_digest,
        "plan_digest": plan.plan_digest, "world_size": 1, "resume_from": resume_from,
    }  # fmt: skip
