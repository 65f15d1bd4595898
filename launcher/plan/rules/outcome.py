"""Rules that need the plan's figures: memory, hours, dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.rules.case import finding
from launcher.units import format_bytes, format_dollars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding, Plan
    from launcher.plan.rules.case import Case

LIFETIME_HOURS = {"dedicated": 21 * 24, "spot": 7 * 24}
"""Azure ML ends a job after 21 days, 7 on low priority (how-to-manage-quotas.md, read 2026-11-30)."""


def memory(case: Case, plan: Plan) -> Iterator[Finding]:
    """The fullest rank fits its device."""
    held, usable = plan.memory.bytes_per_gpu, plan.memory.usable_bytes
    if usable is None or plan.memory.verdict == "fits":
        return
    biggest = max(plan.memory.lines, key=lambda line: line.bytes)
    figures = f"{format_bytes(held)} of {format_bytes(usable)} a GPU, {format_bytes(biggest.bytes)} {biggest.name}"
    if plan.memory.verdict == "tight":
        yield finding("warning", "memory_tight", f"tight: {figures}", "training.micro_batch_size")
        return
    keys = ("training.micro_batch_size", "parallelism.zero_stage", "training.activation_checkpointing")
    yield finding("error", "memory", f"does not fit: {figures}", *keys, allowed=f"at most {format_bytes(usable)}")


def lifetime(case: Case, plan: Plan) -> Iterator[Finding]:
    """A run longer than a job may live goes on in a second job, from a checkpoint."""
    cluster = case.recipe.cluster
    limit = LIFETIME_HOURS[cluster.tier]
    if cluster.backend != "azureml" or plan.time.expected_hours <= limit:
        return
    keys = ("cluster.tier", "checkpoint.interval_steps", "cluster.instance_count")
    days = plan.time.expected_hours / 24
    message = f"{days:.1f} days: Azure ML ends a {cluster.tier} job after {limit // 24} days"
    if case.recipe.checkpoint.interval_steps:
        yield finding("warning", "lifetime", f"{message}; the run goes on in another job from its checkpoint", *keys)
    else:
        edits = (("checkpoint.interval_steps=100",),)
        yield finding("error", "lifetime", f"{message}, and nothing is saved before the end", *keys, edits=edits)


def timeout(case: Case, plan: Plan) -> Iterator[Finding]:
    """A time limit below the planned hours ends the run early."""
    limit = case.recipe.limits.timeout_hours
    if limit is not None and plan.time.hours > limit:
        message = f"the plan takes {plan.time.hours:.3g} h; limits.timeout_hours ends it after {limit:g} h"
        edits = ((f"limits.timeout_hours={plan.time.expected_hours * 1.2:.0f}",),)
        yield finding("warning", "timeout", message, "limits.timeout_hours", edits=edits)


def budget(case: Case, plan: Plan) -> Iterator[Finding]:
    """A plan dearer than the budget is refused; an unknown price cannot be held to one."""
    limit, dollars = case.recipe.limits.budget_dollars, plan.cost.dollars
    if dollars is None:
        name = f"{case.recipe.cluster.tier} price of {case.size.name}"
        message = f"the {name} is unknown: cluster.price_dollars_per_hour sets it"
        level = "note" if limit is None else "warning"
        yield finding(
            "warning" if level == "warning" else "note", "price_unknown", message, "cluster.price_dollars_per_hour"
        )
    elif limit is not None and dollars > limit:
        message = f"{format_dollars(dollars)} is more than limits.budget_dollars {format_dollars(limit)}"
        edits = ((f"limits.budget_dollars={dollars:.0f}",),)
        yield finding("error", "budget", message, "limits.budget_dollars", edits=edits)
