"""What this process was sent to do: the recipe of ``job.json`` and the plan made again from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.errors import Fault, PlanError, UsageError
from launcher.job.mounted import mounted
from launcher.job.spec import JOB_SCHEMA_VERSION
from launcher.plan.planner import make_plan
from launcher.recipe import codec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe


_OF_THE_SUBMISSION = "plan.budget"
"""The finding a person may overlook (``--over-budget``); what was submitted was paid for knowingly."""


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One run, as every rank of it sees it."""

    document: dict[str, Any]
    """``job.json`` as it was read."""
    recipe: Recipe
    plan: Plan
    resume_from: str | None
    """Checkpoint folder of another run to continue from."""


def read_assignment(job: Path, *, world_size: int, mounts: Mapping[str, str] | None = None) -> Assignment:
    """Decode ``job.json``, make its plan again, and compare what was planned with what is here.

    Args:
        job: Path of ``job.json``.
        world_size: Ranks that really run.
        mounts: Where the recipe's remote paths lie here.

    Raises:
        UsageError: the file cannot be read, or is of another version.
        RecipeError: the recipe in it cannot be decoded.
        PlanError: digest or world size differ from the planned ones, or the plan forbids running.
    """
    document = _read(job)
    recipe = codec.decode(document["recipe"])
    plan = make_plan(recipe)
    faults = [*_differences(document, plan, world_size), *_refusals(plan)]
    if faults:
        raise PlanError(faults)
    mounts, resume_from = mounts or {}, document.get("resume_from")
    return Assignment(
        document=document,
        recipe=mounted(recipe, mounts),
        plan=plan,
        resume_from=mounts.get(resume_from, resume_from) if resume_from else None,
    )


def _read(job: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(job.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the job {job}: {error}") from error
    version = document.get("schema_version")
    if version != JOB_SCHEMA_VERSION:
        raise UsageError(f"{job} has schema version {version}; this launcher reads {JOB_SCHEMA_VERSION}")
    return document


def _differences(document: dict[str, Any], plan: Plan, world_size: int) -> list[Fault]:
    """Planned beside real, where they differ."""
    faults = []
    if document["plan_digest"] != plan.plan_digest:
        what = f"the plan made here ({plan.plan_digest}) is not the plan that was submitted ({document['plan_digest']})"
        faults.append(
            Fault(what=what, code="training.plan_digest", suggestion="submit with the launcher that runs here")
        )
    if plan.topology.world_size != world_size:
        what = f"{plan.topology.world_size} ranks were planned and {world_size} run (WORLD_SIZE)"
        keys = ("cluster.instance_count", "cluster.processes_per_instance")
        faults.append(Fault(what=what, keys=keys, allowed=plan.topology.equation, code="training.world_size"))
    return faults


def _refusals(plan: Plan) -> list[Fault]:
    return [
        Fault(what=finding.message, keys=finding.keys, allowed=finding.allowed, code=finding.code)
        for finding in plan.errors
        if finding.code != _OF_THE_SUBMISSION
    ]
