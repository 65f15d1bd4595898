"""JobSpec: what shall run, in no backend's words; and the ``job.json`` that travels with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

JOB_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The code that travels: where it came from and what it is."""

    root: str
    """Folder the code is taken from."""
    commit: str | None
    """git commit, or None outside a checkout."""
    is_dirty: bool
    """Whether tracked files differ from the commit."""
    digest: str | None = None
    """Content address of the staged files, when staged."""
    allowed_secrets: tuple[str, ...] = ()
    """Digests of what looks like secrets in the code, and a person has said is none."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A remote input or output of the job."""

    path: str
    """Datastore URI, ``azureml:`` asset, or local folder."""
    kind: Literal["uri_folder", "uri_file", "custom_model"] = "uri_folder"
    mode: Literal["ro_mount", "download", "rw_mount", "upload"] = "ro_mount"


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What shall run: the same for every backend."""

    name: str
    """Unique run name: ``^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$``."""
    display_name: str
    experiment: str
    attempt: int
    command: tuple[str, ...]
    """argv of every rank. ``{job}`` stands for the path of job.json, ``{output}`` for the run's output folder."""
    nodes: int
    processes_per_node: int
    instance_type: str
    device: Literal["cpu", "gpu"]
    environment_variables: dict[str, str]
    inputs: dict[str, Mount] = field(default_factory=dict)
    outputs: dict[str, Mount] = field(default_factory=dict)
    environment_name: str = "cpu"
    image: str | None = None
    environment_asset: str | None = None
    compute: str | None = None
    tier: Literal["dedicated", "spot"] = "dedicated"
    shm_size: str | None = None
    timeout_seconds: int | None = None
    max_restarts: int = 0
    hang_timeout_seconds: float | None = None
    tags: dict[str, str] = field(default_factory=dict)
    """``recipe, recipe_digest, plan_digest, git_commit, ...``."""
    snapshot: Snapshot
    document: dict[str, Any]
    """Content of job.json: ``{"schema_version", "name", "attempt", "recipe": {...}, "recipe_digest", "plan_digest",
    "world_size", "git_commit", "resume_from": PATH | None}``; the recipe in the codec's JSON form."""
    plan: dict[str, Any]
    """Content of plan.json (``plan/codec``), kept beside the run for ``report``."""

    @property
    def world_size(self) -> int:
        """All ranks."""
        return self.nodes * self.processes_per_node
