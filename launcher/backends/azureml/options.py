"""What a recipe says about Azure ML alone: the workspace, who the job is, its services and its place in the queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.job.spec import JobSpec

DEFAULT_DATASTORE = "workspaceblobstore"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The Azure ML keys of ``cluster.*``, ``data.*``, ``checkpoint.*`` and ``entry.*``, as the recipe gave them."""

    subscription_id: str | None = None
    resource_group: str | None = None
    workspace: str | None = None
    datastore: str = DEFAULT_DATASTORE
    identity: str | None = None
    priority: str | None = None
    kubernetes_instance_type: str | None = None
    services: tuple[str, ...] = ()
    ssh_public_key: str | None = None
    per_node_launcher: bool = False
    """Whether one torchrun per node starts the ranks, instead of Azure ML."""
    has_own_script: bool = False
    """Whether a team's script runs instead of the built-in trainer."""
    reads_at_random: bool = True
    """Whether the data is read in shuffled order."""
    downloads_data: bool = False
    """Whether data is copied to the node before the first step, instead of mounted."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Named inputs of a team's script."""
    checkpoint_directory: str | None = None


def options_of(job: JobSpec) -> Options:
    """The options in the recipe that ``job`` carries."""
    recipe: dict[str, Any] = job.document.get("recipe", {})
    cluster, data, entry = (recipe.get(part, {}) for part in ("cluster", "data", "entry"))
    return Options(
        subscription_id=cluster.get("subscription_id"),
        resource_group=cluster.get("resource_group"),
        workspace=cluster.get("workspace"),
        datastore=cluster.get("datastore", DEFAULT_DATASTORE),
        identity=cluster.get("identity"),
        priority=cluster.get("priority"),
        kubernetes_instance_type=cluster.get("kubernetes_instance_type"),
        services=tuple(cluster.get("services", ())),
        ssh_public_key=cluster.get("ssh_public_key"),
        per_node_launcher=entry.get("launcher") == "torchrun",
        has_own_script=entry.get("script") is not None,
        reads_at_random=data.get("shuffle", True),
        downloads_data=data.get("mount") == "download",
        inputs=dict(data.get("inputs", {})),
        checkpoint_directory=recipe.get("checkpoint", {}).get("directory"),
    )
