"""From the spool to one MLflow run: what MLflow has not taken yet, and how it gets there, counted once."""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.tracking.mlflow_tracker import MlflowRun, RefusedError, join_run, open_run
from launcher.tracking.resumption import RUN_FILE
from launcher.tracking.spool import METRICS_FILE, Row, rows_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.tracking.target import Target

MOST_SAMPLES = 1000
"""Samples of the node kept while MLflow does not answer; the oldest go first."""

log = logging.getLogger(__name__)


@dataclass
class Outbox:
    """What MLflow has not taken yet, but for the rows, which wait in the spool."""

    target: dict[str, Any] | None = None
    """Where it goes (``Description.target``), once known."""
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    artifacts: deque[str] = field(default_factory=deque)
    """Paths of files."""
    samples: deque[Row] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    """System metrics; ``step`` is set on the way."""
    ending: str | None = None
    """How the run ended, in MLflow's words, once known."""

    def take(self, message: dict[str, Any]) -> None:
        """Add what a message of the rank brings."""
        self.target = self.target or message.get("target")
        self.parameters |= message.get("parameters", {})
        self.tags |= message.get("tags", {})
        self.artifacts.extend(message.get("artifacts", ()))
        self.ending = self.ending or message.get("finish")


class Courier:
    """Carries an outbox and the rows of a spool to one MLflow run, going on where MLflow did not answer."""

    def __init__(self, output: Path, *, target: Target, attempt: int, leads: bool) -> None:
        """``leads``: it opens the run, carries the spool and ends the run; else it adds samples to the run opened."""
        self._output = output
        self._target = target
        self._attempt = attempt
        self._leads = leads
        self._run: MlflowRun | None = None
        self._sent_bytes = 0

    def deliver(self, outbox: Outbox) -> None:
        """Bring MLflow up to date.

        Raises:
            UnavailableError: MLflow does not answer; what it did not take is still in ``outbox`` and the spool.
            ModuleNotFoundError: MLflow is not installed.
        """
        self._run = self._run or self._open()
        if self._run is None:
            return
        self._deliver_description(self._run, outbox)
        if self._leads:
            self._deliver_spool(self._run)
        self._deliver_samples(self._run, outbox)
        if outbox.ending and self._leads:
            _try(lambda run, ending: run.end(ending), self._run, outbox.ending)
        self._deliver_artifacts(self._run, outbox)

    def _open(self) -> MlflowRun | None:
        """The run; None while rank 0 has not opened the one that this node's samples go to."""
        known = _read(self._output / RUN_FILE)
        run_id = known.get("run_id") if known.get("uri") == self._target.shown_uri else None
        if not self._leads:
            run_id = run_id or self._target.attached_run_id
            return join_run(self._target, run_id=run_id) if run_id else None
        run = open_run(self._target, run_id=run_id)
        self._sent_bytes = known.get("sent_bytes", 0) if run.run_id == run_id else 0
        self._save(run)
        return run

    def _deliver_description(self, run: MlflowRun, outbox: Outbox) -> None:
        dropped = _try(lambda run, it: run.log_parameters(it, attempt=self._attempt), run, outbox.parameters)
        outbox.parameters.clear()
        if dropped:
            log.warning("%d parameters are over this service's limit; the artifact recipe.json has them all", dropped)
            outbox.tags["parameters_dropped"] = str(dropped)
        _try(lambda run, tags: run.log_tags(tags), run, outbox.tags)
        outbox.tags.clear()

    def _deliver_spool(self, run: MlflowRun) -> None:
        while True:
            rows, offset = rows_after(self._output / METRICS_FILE, self._sent_bytes)
            if offset == self._sent_bytes:
                return
            _try(lambda run, rows: run.log_rows(rows), run, rows)
            self._sent_bytes = offset
            self._save(run)

    def _deliver_samples(self, run: MlflowRun, outbox: Outbox) -> None:
        rows = [replace(row, step=round(row.time - run.started_at)) for row in outbox.samples]
        _try(lambda run, rows: run.log_rows(rows), run, rows)
        outbox.samples.clear()

    def _deliver_artifacts(self, run: MlflowRun, outbox: Outbox) -> None:
        """Last of all: files may go to a store of their own, which may be down when MLflow is not."""
        while outbox.artifacts:
            path = Path(outbox.artifacts[0])
            if path.exists():
                _try(lambda run, path: run.log_artifact(path), run, path)
            else:
                log.warning("%s is gone, and will be no artifact", path)
            outbox.artifacts.popleft()

    def _save(self, run: MlflowRun) -> None:
        document = {"uri": self._target.shown_uri, "run_id": run.run_id, "sent_bytes": self._sent_bytes}
        _write(self._output / RUN_FILE, document)


def _try(deliver: Callable[[MlflowRun, Any], Any], run: MlflowRun, what: Any) -> Any:
    """What ``deliver`` returns; what MLflow will never take is told and left behind."""
    try:
        return deliver(run, what)
    except RefusedError as refusal:
        log.warning("MLflow refuses a part of this run: %s", refusal)
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return document


def _write(path: Path, document: dict[str, Any]) -> None:
    """Replace the file in one rename. A disk that refuses costs the next attempt its place, not this one its run."""
    unfinished = path.with_suffix(".unfinished")
    try:
        unfinished.write_text(json.dumps(document))
        unfinished.replace(path)
    except OSError as refusal:
        log.warning("%s cannot be written (%s)", path, refusal)
