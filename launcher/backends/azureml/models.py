"""Checkpoints of runs as versioned models, with where they come from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.backends.azureml.failure import DoubtError, translated
from launcher.backends.azureml.mounts import RUN_OUTPUT
from launcher.backends.azureml.storage import open_folder
from launcher.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.azureml.client import Client, JobView

_STEP = re.compile(r"((?:checkpoints/)?step-(\d+)-[0-9a-f]+)/manifest\.json")
_CARRIED_TAGS = ("recipe", "recipe_digest", "plan_digest", "git_commit", "environment")


@dataclass(frozen=True, kw_only=True)
class RegisteredModel:
    """One version of a model."""

    name: str
    version: str
    path: str
    tags: dict[str, str]


def register(client: Client, job: JobView, name: str, *, step: int | None, figures: dict[str, str]) -> RegisteredModel:
    """Register the checkpoint of ``step`` (the newest when None) of a run as the next version of ``name``.

    Args:
        client: The workspace.
        job: The run.
        name: Of the model.
        step: Optimizer updates done.
        figures: Metrics to keep with it, as text.

    Raises:
        BackendError: the run has no such checkpoint, or the service refuses.
    """
    root = str((job.document.get("outputs") or {}).get(RUN_OUTPUT, {}).get("uri"))
    folder, at = _checkpoint(client, root, job.name, step)
    tags = {tag: job.tags[tag] for tag in _CARRIED_TAGS if tag in job.tags}
    tags |= {"run": job.name, "step": str(at), **figures}
    from azure.ai.ml.entities import Model

    try:
        with translated(f"register model {name}"):
            made = client.sdk.models.create_or_update(
                Model(name=name, path=f"{root}/{folder}", type="custom_model", tags=tags, properties=tags)
            )
    except DoubtError as doubt:
        raise BackendError(str(doubt), suggestion="launcher models list", code="azureml.unavailable") from doubt
    return RegisteredModel(name=made.name, version=made.version, path=made.path, tags=dict(made.tags or {}))


def models(client: Client, name: str | None = None) -> Iterator[RegisteredModel]:
    """Every model of the workspace, newest version of each; every version of ``name`` when given."""
    if name is not None:
        yield from _versions(client, name)
        return
    for found in client.listed("models"):
        latest = found["properties"].get("latestVersion")
        yield from (model for model in _versions(client, found["name"]) if model.version == latest)


def _versions(client: Client, name: str) -> Iterator[RegisteredModel]:
    for found in client.listed(f"models/{name}/versions"):
        properties: dict[str, Any] = found["properties"]
        yield RegisteredModel(
            name=name,
            version=found["name"],
            path=str(properties.get("modelUri") or ""),
            tags=dict(properties.get("tags") or {}),
        )


def _checkpoint(client: Client, root: str, run: str, step: int | None) -> tuple[str, int]:
    """Folder and step of a whole checkpoint: one whose manifest is there, written last."""
    matches = (_STEP.fullmatch(blob.path) for blob in open_folder(client, root).files())
    found = {int(match[2]): match[1] for match in matches if match}
    wanted = max(found, default=None) if step is None else step
    if wanted is None or wanted not in found:
        raise BackendError(
            f"{run} has no checkpoint" + (f" of step {step}" if step is not None else ""),
            allowed=", ".join(map(str, sorted(found))) or "none was saved: checkpoint.interval_steps",
            code="azureml.checkpoint",
        )
    return found[wanted], wanted
