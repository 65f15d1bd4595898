"""The command of a local rank: placeholders filled in with this machine's paths."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import BackendError

if TYPE_CHECKING:
    from launcher.backends.local.folder import RunFolder
    from launcher.job.spec import JobSpec

_TRAINER = ("python", "-m", "launcher.training")
_PLACE = re.compile(r"\{(job|output)\}|\$\{\{\s*(inputs|outputs)\.(\w+)\s*\}\}")
_REMOTE = re.compile(r"(azureml:|[a-z]+://)")


def runs_trainer(job: JobSpec) -> bool:
    """Whether the built-in trainer runs, rather than a team's script."""
    return job.command[:3] == _TRAINER


def local_command(job: JobSpec, folder: RunFolder) -> tuple[str, ...]:
    """Argv of every rank on this machine.

    ``${{inputs.NAME}}`` and ``${{outputs.NAME}}`` are Azure ML's own; here they are a local folder of ``data.inputs``
    and a folder below the run's output, so that a team's command runs unchanged in both places.

    Raises:
        BackendError: an input is remote, or there is none of that name.
    """
    filled = tuple(_PLACE.sub(lambda match: _path(match, job, folder), word) for word in job.command)
    if runs_trainer(job):
        # -P: a tokenizers.py in the team's folder is not the package the trainer means.
        return (sys.executable, "-P", *filled[1:])
    return tuple(sys.executable if word == "python" else word for word in filled[:1]) + filled[1:]


def _path(match: re.Match[str], job: JobSpec, folder: RunFolder) -> str:
    word, kind, name = match.groups()
    if word is not None:
        return str(folder.job if word == "job" else folder.output)
    return _input(name, job) if kind == "inputs" else str(folder.output / name)


def _input(name: str, job: JobSpec) -> str:
    key, inputs = f"data.inputs.{name}", job.document["recipe"].get("data", {}).get("inputs", {})
    if name not in inputs:
        allowed = ", ".join(sorted(inputs)) or None
        raise BackendError(f"entry.arguments name an input {name!r}, and there is none", keys=(key,), allowed=allowed)
    if _REMOTE.match(inputs[name]):
        raise BackendError(
            f"the input {name} = {inputs[name]} is not on this machine",
            keys=(key,),
            suggestion=f"{key}=/A/LOCAL/FOLDER with backend local",
            code="backend.remote_input",
        )
    return str(Path(job.snapshot.root, inputs[name]))
