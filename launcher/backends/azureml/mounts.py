"""Remote data and the run's own folder, as inputs and outputs of the job.

A recipe says ``azureml:corpus:3`` or ``azureml://datastores/...``; inside the job the same bytes lie under a mounted
path. The trainer is told which is which: ``--mount URI=PATH``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from launcher.backends.azureml.options import options_of
from launcher.job.spec import Mount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.azureml.options import Options
    from launcher.job.spec import JobSpec

Mode = Literal["ro_mount", "download"]
Kind = Literal["uri_folder", "uri_file", "custom_model"]
RUN_OUTPUT = "run"
"""The output that holds checkpoints, metrics and everything else a run leaves."""
RUNS_FOLDER = "launcher"
"""Folder of the datastore below which every run has its own."""
_REMOTE = ("azureml:", "https://", "http://", "abfss://", "wasbs://")
_MEGATRON_PAIR = frozenset({".bin", ".idx"})


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Remote data a recipe names, and where the job finds it."""

    uri: str
    name: str
    """Of the input."""
    mount: Mount
    path: str
    """Inside the job, with a placeholder for the mount's own path."""


def with_mounts(job: JobSpec) -> JobSpec:
    """``job`` with its run folder as an output, and every remote path of its recipe as an input."""
    options = options_of(job)
    mode: Mode = "download" if options.downloads_data else "ro_mount"
    remotes = (*_remotes(job.document.get("recipe", {}), mode), *_earlier_run(job, options))
    named = {name: Mount(path=uri, kind=_kind(uri), mode=mode) for name, uri in options.inputs.items()}
    told = {remote.uri: remote.path for remote in remotes}
    if options.checkpoint_directory:
        told[options.checkpoint_directory] = "{output}"
    arguments = () if options.has_own_script else tuple(f"--mount={uri}={path}" for uri, path in told.items())
    return replace(
        job,
        command=(*job.command, *arguments),
        inputs=job.inputs | named | {remote.name: remote.mount for remote in remotes},
        outputs={RUN_OUTPUT: Mount(path=run_folder(job, options), mode="rw_mount")} | job.outputs,
    )


def run_folder(job: JobSpec, options: Options) -> str:
    """Where everything the run leaves is kept: the same place for every attempt, so that the next one resumes."""
    if options.checkpoint_directory and options.checkpoint_directory.startswith("azureml://"):
        return options.checkpoint_directory
    stem = job.name.removesuffix(f"-{job.attempt}")
    return f"azureml://datastores/{options.datastore}/paths/{RUNS_FOLDER}/{stem}"


def _earlier_run(job: JobSpec, options: Options) -> Iterator[Remote]:
    """The checkpoints this run continues from, when they are another run's: of its own it knows."""
    uri: str | None = job.document.get("resume_from")
    if uri and uri.startswith("azureml://") and not uri.startswith(run_folder(job, options)):
        folder, _, checkpoints = uri.rpartition("/")  # metrics and the MLflow run's id lie beside the checkpoints
        mount = Mount(path=folder, mode="ro_mount")
        yield Remote(uri=uri, name="resume", mount=mount, path="{input:resume}/" + checkpoints)


def _remotes(recipe: dict[str, Any], mode: Mode) -> Iterator[Remote]:
    data, model = recipe.get("data", {}), recipe.get("model", {})
    for section, uris in (
        ("train", data.get("train", ())),
        ("validation", data.get("validation", ())),
        ("tokenizer", (data.get("tokenizer") or "",)),
    ):
        yield from (_remote(uri, f"{section}_{n}", mode) for n, uri in enumerate(uris) if uri.startswith(_REMOTE))
    weights = model.get("init_from") or ""
    if weights.startswith(_REMOTE):
        is_model = "://" not in weights or weights.startswith("azureml://registries/")
        mount = Mount(path=weights, kind="custom_model" if is_model else "uri_folder", mode=mode)
        yield Remote(uri=weights, name="weights", mount=mount, path="{input:weights}")


def _remote(uri: str, name: str, mode: Mode) -> Remote:
    """The data at ``uri``; of a Megatron pair (``x.bin`` or ``x.idx``) the folder is mounted, and the prefix told."""
    path, place = PurePosixPath(uri), "{input:" + name + "}"
    if path.suffix in _MEGATRON_PAIR:
        folder = Mount(path=uri.removesuffix(f"/{path.name}"), mode=mode)
        return Remote(uri=uri, name=name, mount=folder, path=f"{place}/{path.stem}")
    return Remote(uri=uri, name=name, mount=Mount(path=uri, kind=_kind(uri), mode=mode), path=place)


def _kind(uri: str) -> Kind:
    """A datastore path whose last part has an extension is a file; an asset and anything else a folder."""
    return "uri_file" if "://" in uri and PurePosixPath(uri).suffix else "uri_folder"
