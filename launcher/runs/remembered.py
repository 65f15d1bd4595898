"""What was planned and asked of a run, wherever it runs: from this machine's copy, else from the run's own job.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from launcher.backends import parse_handle
from launcher.plan import codec as plan_codec
from launcher.plan.planner import make_plan
from launcher.recipe import codec as recipe_codec

if TYPE_CHECKING:
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe


def plan_of(handle: str) -> Plan:
    """The plan the run was submitted with.

    Raises:
        NoSuchRunError: there is no such run.
    """
    backend, name = parse_handle(handle)
    if backend == "local":
        from launcher.backends.local.backend import run_folder

        return plan_codec.decode(json.loads(run_folder(handle).plan.read_bytes()))
    from launcher.backends.azureml.known import known_plan

    kept = known_plan(name)
    return plan_codec.decode(kept) if kept else make_plan(recipe_of(handle))


def recipe_of(handle: str) -> Recipe:
    """The recipe of the run, secrets included where the run's own folder holds it.

    Raises:
        NoSuchRunError: there is no such run.
        RecipeError: it was made by a launcher that spells keys otherwise.
    """
    return recipe_codec.decode(_document(handle)["recipe"])


def checkpoints_of(handle: str) -> str:
    """Where a run that has ended keeps its checkpoints: ``resume_from`` of the run that continues it.

    Raises:
        NoSuchRunError: there is no such run.
        UsageError: it still runs.
        RunFailedError: it left no checkpoint.
    """
    if parse_handle(handle)[0] == "local":
        from launcher.runs.checkpoints import resolve_resume

        return resolve_resume(handle)
    from launcher.backends.azureml.backend import AzureMLBackend

    return AzureMLBackend().checkpoints(handle)


def _document(handle: str) -> dict[str, Any]:
    if parse_handle(handle)[0] == "local":
        from launcher.backends.local.backend import run_folder

        return dict(json.loads(run_folder(handle).job.read_bytes()))
    from launcher.backends.azureml.backend import AzureMLBackend

    return AzureMLBackend().job_document(handle)
