"""What a job reads and writes, as far as Azure ML would get it wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from launcher.backends.azureml.mounts import RUN_OUTPUT
from launcher.backends.azureml.options import options_of
from launcher.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.job.spec import JobSpec

_INPUT_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSET = re.compile(r"azureml:[^/:@]+(?::[^/:@]+|@[^/:@]+)(?:/.*)?")
_BLOB = re.compile(r"https://(?P<account>[^./]+)\.blob\.[^/]+/(?P<container>[^/]+)/?(?P<path>.*)")
_REFERENCE = re.compile(r"\$\{\{\s*(inputs|outputs)\.(\w+)")


def mount_faults(job: JobSpec) -> Iterator[Fault]:
    """Names, addresses, references and the place of checkpoints."""
    yield from _mounts(job)
    yield from _references(job)
    yield from _checkpoints(job)


def _mounts(job: JobSpec) -> Iterator[Fault]:
    for name, mount in (*job.inputs.items(), *job.outputs.items()):
        if not _INPUT_NAME.fullmatch(name) or name == "default":
            yield Fault(
                what=f"{name!r} cannot name an input or output",
                keys=("data.inputs",),
                allowed="letters, digits and _, not beginning with a digit; 'default' is taken",
                code="azureml.input_name",
            )
        blob = _BLOB.fullmatch(mount.path)
        if blob and mount.kind == "uri_folder":
            path = blob["path"]
            yield Fault(
                what=f"input {name}: a folder at an https:// blob address cannot be mounted: {mount.path}",
                keys=("data.train", "data.inputs"),
                suggestion=f"azureml://datastores/NAME/paths/{path}, or "
                f"wasbs://{blob['container']}@{blob['account']}.blob.core.windows.net/{path}",
                code="azureml.blob_folder",
            )
        elif mount.path.startswith("azureml:") and "://" not in mount.path and not is_versioned(mount.path):
            yield Fault(
                what=f"input {name}: {mount.path} has no version",
                keys=("data.train", "data.inputs"),
                allowed="azureml:NAME:VERSION or azureml:NAME@latest",
                suggestion=f"{mount.path}@latest",
                code="azureml.asset_version",
            )


def is_versioned(path: str) -> bool:
    """Whether an ``azureml:`` reference says which version it means."""
    return path.startswith("azureml:/") or _ASSET.fullmatch(path) is not None


def _references(job: JobSpec) -> Iterator[Fault]:
    declared = {"inputs": {*job.inputs, "job"}, "outputs": {*job.outputs, RUN_OUTPUT}}
    for section, name in _REFERENCE.findall(" ".join(job.command)):
        if name not in declared[section]:
            yield Fault(
                what=f"the command reads ${{{{{section}.{name}}}}}, which the job does not have",
                keys=("entry.arguments", "data.inputs"),
                allowed=", ".join(sorted(declared[section])),
                suggestion=f"data.inputs.{name}=azureml:NAME:VERSION" if section == "inputs" else None,
                code="azureml.undeclared",
            )


def _checkpoints(job: JobSpec) -> Iterator[Fault]:
    directory = options_of(job).checkpoint_directory
    if directory and not directory.startswith("azureml://"):
        yield Fault(
            what=f"checkpoints in {directory} would be lost: it is the disk of a VM that goes away"
            + (", and a spot VM may go at any time" if job.tier == "spot" else ""),
            keys=("checkpoint.directory",),
            allowed="unset (the run's own mounted output, the same for every attempt), or azureml://datastores/...",
            suggestion="checkpoint.directory=null",
            code="azureml.checkpoint_directory",
        )
