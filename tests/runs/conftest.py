from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.training.checkpoint.manifest import MANIFEST, Manifest, render
from tests.backends.conftest import backend, launcher_home, script_job

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["backend", "launcher_home", "script_job", "write_checkpoint"]


def write_checkpoint(folder: Path, *, step: int) -> None:
    """A committed checkpoint without any tensor in it."""
    manifest = Manifest(
        step=step,
        tokens=0,
        data_position=0,
        layout={},
        recipe={},
        recipe_digest="",
        attempt=1,
        random="",
        losses={},
        data_digest="",
        scalars={},
        files=(),
    )
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(render(manifest))
