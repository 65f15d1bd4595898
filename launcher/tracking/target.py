"""Where a run is tracked: what the recipe asks for, what the environment says, and an SQLite file else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.home import home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a run is tracked."""

    uri: str
    experiment: str
    name: str
    """Name of a run that has to be created."""
    attached_run_id: str | None = None
    """A run that is there already: the job's own, on Azure ML. Its experiment is never touched."""

    @property
    def is_azure(self) -> bool:
        """Whether Azure ML's limits hold, and Azure ML itself says how the run ended."""
        return self.uri.startswith("azureml:")

    @property
    def shown_uri(self) -> str:
        """The address without user, password and query."""
        return re.sub(r"(?<=://)[^/@]*@", "", self.uri).partition("?")[0]


def resolve_target(wanted: Mapping[str, Any], environment: Mapping[str, str]) -> Target:
    """Where ``wanted`` (``uri, experiment, name`` of a Description) leads in this environment.

    A run named in the environment (Azure ML sets ``MLFLOW_RUN_ID``) wins, with the server it lives on; then the
    recipe's own ``tracking.uri``, then ``MLFLOW_TRACKING_URI``, then an SQLite file under ``$LAUNCHER_HOME``.
    """
    run_id, server = environment.get("MLFLOW_RUN_ID"), environment.get("MLFLOW_TRACKING_URI")
    uri = (server if run_id else None) or wanted["uri"] or server or f"sqlite:///{default_database()}"
    return Target(uri=uri, experiment=wanted["experiment"], name=wanted["name"], attached_run_id=run_id or None)


def default_database() -> Path:
    """The SQLite file runs are tracked in when nothing else is asked for."""
    return home() / "mlflow.db"
