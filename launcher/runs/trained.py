"""The weights a run has left, wherever it ran: its checkpoints in a folder that this machine can read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.backends import parse_handle
from launcher.home import cache_folder
from launcher.runs.remembered import recipe_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from launcher.backends.azureml.storage import Blob
    from launcher.recipe.schema import Data

_CHECKPOINTS = "checkpoints/"


def checkpoints_folder(source: str, *, progress: Callable[[int], None]) -> Path:
    """Where the checkpoints of a run lie here; of a run on Azure ML, the newest is fetched first.

    Args:
        source: A run's handle, or a folder of checkpoints.
        progress: Told the bytes of each portion that has come.

    Raises:
        NoSuchRunError: there is no such run.
    """
    if Path(source).is_dir():
        return Path(source)
    backend, name = parse_handle(source)
    if backend == "local":
        from launcher.backends.local.backend import run_folder
        from launcher.runs.checkpoints import Shelf

        return Shelf(run_folder(source)).directory
    from launcher.backends.azureml.backend import AzureMLBackend

    output, folder = AzureMLBackend().output(source), cache_folder() / "runs" / name
    inside = [blob for blob in without_older_checkpoints(output.files()) if blob.path.startswith(_CHECKPOINTS)]
    output.fetch(inside, folder, progress=progress)
    return folder / _CHECKPOINTS.rstrip("/")


def without_older_checkpoints(files: Iterable[Blob]) -> list[Blob]:
    """A run's files without those of any checkpoint (``checkpoints/step-00000300-7ccf1a/...``) but the newest whole."""
    files = list(files)
    whole = {_step(blob) for blob in files if blob.path.endswith("/manifest.json")}
    newest = max(whole, default="")
    return [blob for blob in files if _step(blob) in ("", newest)]


def _step(blob: Blob) -> str:
    """Name of the checkpoint a file belongs to; empty for any other file."""
    name = blob.path.removeprefix(_CHECKPOINTS).partition("/")[0] if blob.path.startswith(_CHECKPOINTS) else ""
    return name if name.startswith("step-") else ""


def held_out(source: str, saved: Data, validation: tuple[str, ...]) -> Data:
    """What a run is evaluated on: ``validation`` if it is given, else what its recipe holds out.

    Args:
        source: A run's handle, or a folder of checkpoints.
        saved: The recipe's ``data`` as the job read it: paths of a job on Azure ML are not on this machine.
        validation: Corpora instead.
    """
    is_folder = Path(source).is_dir()
    data = saved if is_folder else recipe_of(source).data
    return replace(data, validation=validation) if validation else data
