"""Checkpoints of a local run, seen from outside: which there are, and where to continue from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.backends import backend_for
from launcher.backends.local.backend import run_folder
from launcher.errors import RunFailedError, UsageError
from launcher.training.checkpoint.manifest import MANIFEST, read_manifest, step_folders

if TYPE_CHECKING:
    from launcher.backends.local.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint."""

    path: Path
    step: int
    """Optimizer updates done."""


class Shelf:
    """The checkpoints of one run; a manifest is read once, however often one looks."""

    def __init__(self, folder: RunFolder) -> None:
        self.directory = _directory(folder)
        self._newest: Checkpoint | None = None

    def newest(self) -> Checkpoint | None:
        """The newest one with a whole manifest. Its files are not read: the trainer verifies them."""
        for path in step_folders(self.directory):
            if self._newest is not None and self._newest.path == path and (path / MANIFEST).is_file():
                return self._newest
            if (manifest := read_manifest(path)) is not None:
                self._newest = Checkpoint(path=path, step=manifest.step)
                return self._newest
        return None


def resolve_resume(handle: str) -> str:
    """The checkpoints of a run that has ended: ``resume_from`` of the run that continues it.

    The folder that holds them, not the newest alone: should that turn out damaged, the trainer takes the one before.

    Raises:
        NoSuchRunError: there is no such run here.
        UsageError: it still runs.
        RunFailedError: it left no checkpoint.
    """
    shelf = Shelf(run_folder(handle))
    status = backend_for("local").status(handle)
    if not status.is_terminal:
        raise UsageError(
            f"{handle} is {status.state}: two runs must not continue the same one",
            suggestion=f"launcher cancel {handle}",
            code="resume.running",
        )
    if shelf.newest() is None:
        raise no_checkpoint(handle, shelf.directory)
    return str(shelf.directory)


def no_checkpoint(handle: str, directory: Path) -> RunFailedError:
    """A run that cannot be continued."""
    return RunFailedError(
        f"{handle} left no checkpoint in {directory}",
        keys=("checkpoint.interval_steps",),
        suggestion="checkpoint.interval_steps=100 saves as the run goes",
        code="resume.no_checkpoint",
    )


def _directory(folder: RunFolder) -> Path:
    """Where the run's recipe has checkpoints put: its own output folder, unless it names another."""
    chosen = json.loads(folder.recipe.read_bytes()).get("checkpoint", {}).get("directory")
    return Path(folder.read_launch().folder, chosen) if chosen else folder.output / "checkpoints"
