"""``build_job``: from a recipe and its plan to what shall run. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from launcher.errors import Fault, PlanError
from launcher.job.entry import command
from launcher.job.names import display_name, experiment_name, run_name
from launcher.job.spec import JOB_SCHEMA_VERSION, JobSpec
from launcher.job.variables import as_text, variable_faults
from launcher.plan import codec as plan_codec
from launcher.recipe import codec as recipe_codec
from launcher.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from launcher.job.spec import Snapshot
    from launcher.plan.plan import Finding, Plan
    from launcher.recipe.schema import Recipe

_ENTRY_CODES = frozenset({"plan.arguments_without_script", "plan.nested_launcher", "plan.enters_nodes"})
"""Findings that leave nothing to run."""


def build_job(
    recipe: Recipe, plan: Plan, snapshot: Snapshot, *, attempt: int = 1, resume_from: str | None = None
) -> JobSpec:
    """What shall run, in no backend's words.

    Args:
        recipe: What was asked.
        plan: ``make_plan(recipe)``; remade and compared inside the job.
        snapshot: The code that travels.
        attempt: 1 for the first submission of this intent; part of the name, so that no two attempts share one.
        resume_from: A checkpoint folder to continue from.

    Raises:
        PlanError: environment variables or the entry cannot work; all faults at once.
    """
    refused = (found for found in plan.errors if found.code in _ENTRY_CODES)
    faults = (*variable_faults(recipe.environment.variables), *map(_fault, refused))
    if faults:
        raise PlanError(faults)
    name = run_name(recipe.name, intent=intent(recipe, snapshot), attempt=attempt)
    hours, minutes = recipe.limits.timeout_hours, recipe.limits.hang_timeout_minutes
    return JobSpec(
        name=name,
        display_name=display_name(recipe.name),
        experiment=experiment_name(recipe.tracking.experiment),
        attempt=attempt,
        command=command(recipe.entry),
        nodes=plan.topology.nodes,
        processes_per_node=plan.topology.processes_per_node,
        instance_type=recipe.cluster.instance_type,
        device="cpu" if recipe.cluster.instance_type == "local_cpu" else "gpu",
        environment_variables=as_text(recipe.environment.variables),
        environment_name=recipe.environment.name,
        image=recipe.environment.image,
        environment_asset=recipe.environment.asset,
        compute=recipe.cluster.compute,
        tier=recipe.cluster.tier,
        shm_size=recipe.cluster.shm_size,
        timeout_seconds=None if hours is None else round(hours * SECONDS_PER_HOUR),
        max_restarts=recipe.limits.max_restarts,
        hang_timeout_seconds=None if minutes is None else minutes * 60,
        tags=_tags(recipe, plan, snapshot),
        snapshot=snapshot,
        document=_document(recipe, plan, snapshot, name=name, attempt=attempt, resume_from=resume_from),
        plan=plan_codec.encode(plan),
    )


def _fault(found: Finding) -> Fault:
    return Fault(what=found.message, keys=found.keys, allowed=found.allowed, code=found.code)


def with_attempt(job: JobSpec, attempt: int) -> JobSpec:
    """The same job under another attempt's name."""
    stem = job.name.removesuffix(f"-{job.attempt}")
    name = f"{stem}-{attempt}"
    return replace(job, name=name, attempt=attempt, document={**job.document, "name": name, "attempt": attempt})


def intent(recipe: Recipe, snapshot: Snapshot) -> str:
    """64 hex digits that two submissions share when they would do the same thing in the same place.

    The place (workspace, compute) is part of the recipe; names, descriptions and tags are not part of the intent.
    """
    code = snapshot.digest or (snapshot.commit, snapshot.is_dirty)
    return hashlib.sha256(json.dumps([_asked(recipe), code], sort_keys=True).encode()).hexdigest()


def _asked(part: Any) -> Any:
    """A recipe as plain values without the keys that change nothing (tag ``metadata``)."""
    if not is_dataclass(part):
        return part
    asked = (item for item in fields(part) if item.metadata.get("tag") != "metadata")
    return {item.name: _asked(getattr(part, item.name)) for item in asked}


def _tags(recipe: Recipe, plan: Plan, snapshot: Snapshot) -> dict[str, str]:
    code = {"git_commit": snapshot.commit, "git_dirty": str(snapshot.is_dirty).lower()} if snapshot.commit else {}
    ours = {"recipe": recipe.name, "recipe_digest": plan.recipe_digest, "plan_digest": plan.plan_digest, **code}
    return as_text({**recipe.tags, **ours})


def _document(
    recipe: Recipe, plan: Plan, snapshot: Snapshot, *, name: str, attempt: int, resume_from: str | None
) -> dict[str, Any]:
    return {
        "schema_version": JOB_SCHEMA_VERSION,
        "name": name,
        "attempt": attempt,
        "recipe": recipe_codec.encode(recipe),
        "recipe_digest": plan.recipe_digest,
        "plan_digest": plan.plan_digest,
        "world_size": plan.topology.world_size,
        "git_commit": snapshot.commit,
        "resume_from": resume_from,
    }
