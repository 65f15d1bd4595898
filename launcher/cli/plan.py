"""``launcher plan``: what follows from a recipe, before a cent is spent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from launcher.cli.invocation import Invocation, Verb
from launcher.cli.recipe_words import compose_words, recipe_words
from launcher.errors import BudgetError, PlanError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.errors import LauncherError
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

BUDGET_CODE = "plan.budget"
"""The finding that ``--over-budget`` overlooks."""
OVERLOOK = "launcher submit ... --over-budget"


@click.command(cls=Verb)
@recipe_words
@click.option(
    "--resume",
    metavar="HANDLE",
    help="Say also whether the checkpoints of this run (or in this folder) can be gone on from, and what changes.",
)
@click.pass_obj
def command(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...], resume: str | None) -> None:
    """Show what follows from a recipe: memory, time, dollars and findings.

    launcher plan gpt/13b cluster=nd_h100_v5 cluster.instance_count=16
    launcher plan llama3/70b parallelism.tensor_parallel_size=8 --json
    launcher plan gpt/1.3b parallelism.zero_stage=1,2,3      several values are several jobs
    launcher plan gpt/tiny parallelism=fsdp --resume latest
    """
    from launcher.cli.sweep import sweep

    jobs = sweep(words, recipe_dirs)
    if len(jobs) > 1 and resume:
        raise UsageError("one job goes on from a run, not several", suggestion="one value for every key")
    if len(jobs) > 1:
        refused = _plan_sweep(invocation, jobs, recipe_dirs)
    else:
        refused = _plan(invocation, words, recipe_dirs, resume)
    if refused is None:
        return
    if invocation.json:
        raise click.exceptions.Exit(refused.exit_code)
    invocation.say("")
    raise refused


def _plan(
    invocation: Invocation, words: Sequence[str], recipe_dirs: Sequence[Path], resume: str | None
) -> LauncherError | None:
    """Show the plan; return why it may not run."""
    from launcher.cli.failure import error_document
    from launcher.cli.plan_text import plan_lines
    from launcher.plan.codec import encode

    composed = compose_words(invocation, words, recipe_dirs)
    plan = planned(composed.recipe)
    document, lines = encode(plan), plan_lines(plan, composed.recipe, composed)
    refused = refusal(plan)
    if resume:
        from launcher.cli.resumption import resumption, resumption_document, resumption_lines

        found = resumption(invocation, resume, composed.recipe, plan)
        document["resume"] = resumption_document(found)
        lines += resumption_lines(found)
        refused = refused or (PlanError(list(found.faults)) if found.faults else None)
    if refused is not None:
        document["error"] = error_document(refused, composed)
    invocation.answer(document, lambda: "\n".join(lines))
    return refused


def _plan_sweep(
    invocation: Invocation, jobs: Sequence[tuple[str, ...]], recipe_dirs: Sequence[Path]
) -> LauncherError | None:
    """Show a line a job and their total; return why the first that may not run may not."""
    from launcher.cli.sweep import first_refusal, plan_cases, sweep_lines, total_document
    from launcher.plan.codec import encode

    cases = plan_cases(invocation, jobs, recipe_dirs)
    document = {
        "jobs": [{"overrides": list(case.words), "plan": encode(case.plan)} for case in cases],
        "total": total_document(cases),
    }
    invocation.answer(document, lambda: "\n".join(sweep_lines(cases)))
    return first_refusal(invocation, cases)


def planned(recipe: Recipe) -> Plan:
    """The plan of a recipe.

    Raises:
        PlanError: none can be computed; each fault with every edit that mends it, and what that leads to.
    """
    from launcher.cli.plan_text import finding_fault
    from launcher.plan.findings import RefusedPlanError
    from launcher.plan.planner import make_plan

    try:
        return make_plan(recipe)
    except RefusedPlanError as refused:
        raise PlanError([finding_fault(found) for found in refused.findings]) from None


def refusal(plan: Plan, *, over_budget: bool = False) -> PlanError | BudgetError | None:
    """The plan's error findings as an error, of the budget when that is all there is; None when it may run."""
    from launcher.cli.plan_text import finding_fault

    faults = [finding_fault(finding) for finding in plan.errors if not (over_budget and finding.code == BUDGET_CODE)]
    if not faults:
        return None
    if any(fault.code != BUDGET_CODE for fault in faults):
        return PlanError(faults)
    return BudgetError([replace(each, suggestion=f"{each.suggestion or ''}\n{OVERLOOK}".strip()) for each in faults])
