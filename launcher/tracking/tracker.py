"""The tracker of one rank: rank 0 writes the spool, a process beside it follows the spool into MLflow.

MLflow lives in a process of its own (``tracking/follower.py``), not in a thread: its import and the first creation of
its database are seconds of pure Python that would take the interpreter lock from the training loop. The pipe to that
process carries what is known at the start, tags, and how the run ended; metrics go through the file alone. When rank 0
is killed the pipe closes, and the follower still records how the run ended.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from launcher.tracking.description import Description, describe
from launcher.tracking.resumption import inherit
from launcher.tracking.spool import METRICS_FILE, Spool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launcher.plan.plan import Plan

log = logging.getLogger(__name__)

Status = Literal["FINISHED", "FAILED", "KILLED"]
"""MLflow's words: ended well, by an exception, by a signal (cancel, preemption)."""
FINISH_SECONDS: dict[Status, float] = {"FINISHED": 30.0, "FAILED": 30.0, "KILLED": 10.0}
"""How long the end of a run may wait for MLflow; a preempted VM is gone 30 s after its notice."""


class Tracker(Protocol):
    """What a training loop tells the world. No method raises for MLflow's or the disk's sake; only ``finish`` waits."""

    def start(
        self,
        *,
        first_step: int,
        parameters: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        artifacts: Mapping[str, str] | None = None,
    ) -> None:
        """Say which step comes first (1, or the checkpoint's + 1), and what is known besides the recipe.

        What earlier attempts measured from ``first_step`` on is superseded. ``artifacts`` maps file names to text
        (``{"deepspeed_config.json": "..."}``). Secrets of the recipe are removed from all of it.
        """
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of ``step`` (names in ``tracking/metrics.py``): one line to the file, well under 1 ms."""
        ...

    def tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""
        ...

    def finish(self, status: Status) -> None:
        """Say how the run ended, and give MLflow a bounded time to take what it lacks. Later calls do nothing."""
        ...


def open_tracker(
    document: Mapping[str, Any],
    *,
    output: Path,
    rank: int,
    plan: Plan | None = None,
    node: int = 0,
    local_rank: int | None = None,
) -> Tracker:
    """The tracker of ``rank``, with the recipe, plan and versions of ``document`` (job.json) already on their way.

    Call it once per process, as early as the rank is known: a run that fails while the model is built is then seen to
    fail. Rank 0 tracks; the first rank of every other node (``local_rank`` 0) records that node's system metrics when
    the recipe asks for them; all other ranks do nothing.
    """
    settings = document["recipe"].get("tracking", {})
    is_enabled = settings.get("enabled", True)
    if rank == 0:
        inherit(output, document.get("resume_from"))
        spool = Spool(output / METRICS_FILE, attempt=document.get("attempt"))
        description = describe(document, plan=plan, attempt=spool.attempt)
        follower = Follower(output, node=node, leads=True) if is_enabled else None
        return RunTracker(spool, follower, description)
    if is_enabled and local_rank == 0 and node != 0 and settings.get("system_metrics", True):
        return NodeTracker(Follower(output, node=node, leads=False), describe(document, plan=None))
    return NullTracker()


class NullTracker:
    """Of a rank that has nothing to tell."""

    def start(
        self,
        *,
        first_step: int,
        parameters: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        artifacts: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def tag(self, name: str, value: str) -> None:
        """Nothing."""

    def finish(self, status: Status) -> None:
        """Nothing."""


class NodeTracker(NullTracker):
    """Of the first rank of a node that is not the first: its follower samples the node into the run of rank 0."""

    def __init__(self, follower: Follower, description: Description) -> None:
        self._follower = follower
        follower.send(target=description.target)

    def finish(self, status: Status) -> None:
        """End the sampling."""
        self._follower.finish(status, seconds=FINISH_SECONDS[status])


class RunTracker:
    """Of rank 0."""

    def __init__(self, spool: Spool, follower: Follower | None, description: Description) -> None:
        self._spool = spool
        self._follower = follower
        self._description = description
        self._is_finished = False
        self._send(target=description.target, tags=description.tags, parameters=description.parameters)
        self._write_artifacts(description.artifacts)

    def start(
        self,
        *,
        first_step: int,
        parameters: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        artifacts: Mapping[str, str] | None = None,
    ) -> None:
        """See Tracker."""
        self._spool.append(first_step, {})
        self._send(
            parameters={name: self._clean(str(value)) for name, value in (parameters or {}).items()},
            tags={name: self._clean(value) for name, value in (tags or {}).items()},
        )
        self._write_artifacts(artifacts or {})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See Tracker."""
        self._spool.append(step, metrics)

    def tag(self, name: str, value: str) -> None:
        """See Tracker."""
        self._send(tags={name: self._clean(value)})

    def finish(self, status: Status) -> None:
        """See Tracker."""
        if self._is_finished:
            return
        self._is_finished = True
        self._spool.close()
        if self._follower:
            self._follower.finish(status, seconds=FINISH_SECONDS[status])

    def _clean(self, text: str) -> str:
        return self._description.without_secrets(text)

    def _send(self, **message: Any) -> None:
        if self._follower:
            self._follower.send(**message)

    def _write_artifacts(self, artifacts: Mapping[str, str]) -> None:
        folder = self._spool.path.parent / "tracking"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in artifacts.items():
                (folder / name).write_text(self._clean(text), encoding="utf-8")
                self._send(artifacts=[str(folder / name)])
        except OSError as refusal:
            log.warning("artifacts cannot be written to %s (%s); training goes on", folder, refusal)


class Follower:
    """The process that speaks to MLflow, seen from the rank that started it."""

    def __init__(self, output: Path, *, node: int, leads: bool) -> None:
        """Start it. ``leads``: it follows rank 0's spool and ends the run; else it only samples its node."""
        self._process: subprocess.Popen[bytes] | None = None
        command = [sys.executable, "-m", "launcher.tracking.follower", str(output.resolve()), str(node)]
        try:
            self._process = subprocess.Popen(
                [*command, "leads" if leads else "samples"],
                stdin=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": _python_path()},
            )
        except OSError as refusal:
            _warn(f"no process could be started for it ({refusal})")

    def send(self, **message: Any) -> None:
        """Hand it a message, a JSON line; it reads at once, whatever MLflow does."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as refusal:
            self._process.poll()
            self._process = None
            _warn(f"its process has ended ({refusal})")

    def finish(self, status: Status, *, seconds: float) -> None:
        """Tell it how the run ended; wait up to ``seconds`` for it to say so to MLflow."""
        self.send(finish=status, seconds=seconds)
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=seconds + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            _warn(f"it did not answer within {seconds:.0f} s")


def _python_path() -> str:
    """Where the launcher itself lies, in front of what the rank was given: a job runs from a snapshot."""
    root = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))


def _warn(reason: str) -> None:
    log.warning("MLflow does not follow this run: %s; its metrics are in %s", reason, METRICS_FILE)
