"""The folder of a local run: what lies where, and who holds it."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the supervisor is told: ``launch.json``."""

    command: tuple[str, ...]
    """argv of every rank, every placeholder filled in."""
    folder: str
    """Working directory of the ranks."""
    variables: dict[str, str]
    """Environment variables of the recipe."""
    world_size: int
    processes_per_node: int
    needs_completion: bool
    """Whether a good run leaves ``output/completed.json``, as the built-in trainer does."""
    max_restarts: int
    timeout_seconds: float | None
    hang_timeout_seconds: float | None
    grace_seconds: float
    """Between SIGTERM and SIGKILL when a run is cancelled or timed out: time to write a checkpoint."""


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    path: Path

    @property
    def job(self) -> Path:
        """What the trainer reads."""
        return self.path / "job.json"

    @property
    def plan(self) -> Path:
        """What was promised."""
        return self.path / "plan.json"

    @property
    def recipe(self) -> Path:
        """What was asked."""
        return self.path / "recipe.json"

    @property
    def launch(self) -> Path:
        """What the supervisor reads."""
        return self.path / "launch.json"

    @property
    def state(self) -> Path:
        """What the supervisor writes."""
        return self.path / "state.json"

    @property
    def cancel(self) -> Path:
        """Exists once somebody asked for the end."""
        return self.path / "cancel"

    @property
    def output(self) -> Path:
        """What the run makes: checkpoints and metrics."""
        return self.path / "output"

    @property
    def metrics(self) -> Path:
        """A row per logged step."""
        return self.output / "metrics.jsonl"

    @property
    def completed(self) -> Path:
        """The trainer's own word that it came to its end."""
        return self.output / "completed.json"

    @property
    def failed(self) -> Path:
        """Exists once a rank has failed: the others are ended because of it, and not because somebody asked."""
        return self.output / "failed"

    @property
    def logs(self) -> Path:
        """A file per rank, and the supervisor's own."""
        return self.path / "logs"

    def log(self, rank: int) -> Path:
        """Standard output and error of ``rank``."""
        return self.logs / f"rank-{rank:05d}.log"

    @property
    def lock(self) -> Path:
        """Locked (flock) for as long as the run has a living supervisor, or somebody about to start one."""
        return self.path / "supervisor.lock"

    def read_launch(self) -> Launch:
        """What the supervisor was told."""
        values = json.loads(self.launch.read_bytes())
        return Launch(**{**values, "command": tuple(values["command"])})

    def write_launch(self, launch: Launch) -> None:
        """Tell the supervisor."""
        self.launch.write_text(json.dumps(asdict(launch), indent=1), encoding="utf-8")

    @contextmanager
    def held(self) -> Iterator[int | None]:
        """The open lock, or None when a supervisor holds it. A child that inherits it keeps it."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
            else:
                yield descriptor
        finally:
            os.close(descriptor)
