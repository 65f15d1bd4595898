"""The code a job takes along: told, and named, before anything is confirmed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.cli.invocation import Invocation
    from launcher.job.spec import Snapshot
    from launcher.recipe.schema import Recipe


def staged_snapshot(
    invocation: Invocation, recipe: Recipe, root: Path, *, allowed_secrets: tuple[str, ...] = ()
) -> Snapshot:
    """The snapshot of ``root``; for a job that runs elsewhere, staged and with the digest its name is made from.

    Raises:
        PlanError: the code holds a secret, passes a limit, or lacks the script.
    """
    from launcher.job.snapshot import take_snapshot

    snapshot = take_snapshot(root)
    if recipe.cluster.backend == "local":
        return snapshot
    from launcher.job.stage import preview, stage_code

    staged = stage_code(root, recipe.entry, allowed_secrets=frozenset(allowed_secrets))
    dirty = "; changed since the commit: the diff travels along" if snapshot.is_dirty else ""
    invocation.say(f"code       {preview(staged)}{dirty}")
    for note in staged.notes:
        invocation.say(f"note: {note}")
    return replace(snapshot, digest=staged.digest, allowed_secrets=allowed_secrets)
