"""Rules of saving: a VM that may be taken away, and storage that may not outlive the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.rules.case import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case

_DIRECTORY = "checkpoint.directory"
_MOUNTED = ("azureml://", "${{outputs.", "abfss://", "wasbs://")


def spot(case: Case) -> Iterator[Finding]:
    """On spot VMs a run must save and resume, or it starts again at step 0 each time it is evicted."""
    if case.recipe.cluster.tier != "spot":
        return
    saving = case.recipe.checkpoint
    if saving.interval_steps == 0:
        message = "spot VMs can be taken away at any time, and no checkpoint is saved before the end"
        keys = ("checkpoint.interval_steps", "cluster.tier")
        edits = (("checkpoint.interval_steps=100",), ("cluster.tier=dedicated",))
        yield finding("error", "spot_checkpoint", message, *keys, allowed="at least 1", edits=edits)
    if saving.resume == "never":
        message = "spot VMs can be taken away, and resume=never starts again at step 0 each time"
        edits = (("checkpoint.resume=auto",), ("cluster.tier=dedicated",))
        yield finding("error", "spot_resume", message, "checkpoint.resume", "cluster.tier", edits=edits)


def directory(case: Case) -> Iterator[Finding]:
    """An Azure ML node's own disk is lost with the node: checkpoints belong in a mounted output."""
    cluster, path = case.recipe.cluster, case.recipe.checkpoint.directory
    if cluster.backend != "azureml" or path is None or path.startswith(_MOUNTED):
        return
    level = "error" if cluster.tier == "spot" else "warning"
    yield finding(
        "error" if level == "error" else "warning",
        "checkpoint_directory",
        f"checkpoints in {path} are on the node's own disk and are lost when the job ends or the node is taken away",
        _DIRECTORY,
        "cluster.tier" if cluster.tier == "spot" else "cluster.backend",
        allowed="the run's mounted output (leave it out), or azureml://datastores/NAME/paths/...",
        edits=((f"{_DIRECTORY}=null",),),
    )
