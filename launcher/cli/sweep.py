"""Several jobs from one command line: each planned, all of them shown with their total before any is submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.cli import terminal
from launcher.cli.plan import planned, refusal
from launcher.cli.recipe_words import compose_words, recipe_first
from launcher.units import format_bytes, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from launcher.cli.invocation import Invocation
    from launcher.compose.composer import Composed
    from launcher.errors import LauncherError
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe


@dataclass(frozen=True, kw_only=True)
class Case:
    """One job of a sweep."""

    words: tuple[str, ...]
    """What sets it apart from the others."""
    composed: Composed
    plan: Plan

    @property
    def recipe(self) -> Recipe:
        """As composed."""
        return self.composed.recipe

    @property
    def device_hours(self) -> float:
        """Of all ranks together."""
        return self.plan.time.expected_hours * self.plan.topology.world_size


def sweep(words: Sequence[str], recipe_dirs: Sequence[Path]) -> tuple[tuple[str, ...], ...]:
    """The words of each job: one, unless a word has several values."""
    if not any("," in word or "(" in word for word in words):
        return (tuple(words),)
    from launcher.compose.sweep import expand

    return expand(recipe_first(words), recipe_dirs=recipe_dirs)


def plan_cases(
    invocation: Invocation, lines: Sequence[tuple[str, ...]], recipe_dirs: Sequence[Path]
) -> tuple[Case, ...]:
    """Each job, composed and planned.

    Raises:
        RecipeError: the first that cannot be composed.
        PlanError: the first that cannot be planned.
    """
    cases = []
    for line in lines:
        composed = compose_words(invocation, line, recipe_dirs)
        own = tuple(word for word in line if any(word not in other for other in lines))
        cases.append(Case(words=own, composed=composed, plan=planned(composed.recipe)))
    return tuple(cases)


def first_refusal(invocation: Invocation, cases: Iterable[Case], *, over_budget: bool = False) -> LauncherError | None:
    """Why the first job that may not run may not; that job's recipe is then in hand."""
    for case in cases:
        refused = refusal(case.plan, over_budget=over_budget)
        if refused is not None:
            invocation.composed = case.composed
            return refused
    return None


def sweep_lines(cases: Sequence[Case]) -> list[str]:
    """A line a job, and the total."""
    heading = tuple(map(terminal.bold, ("job", "memory", "step", "hours", "dollars")))
    total = f"{len(cases)} jobs, {sum(case.device_hours for case in cases):,.1f} {_device_hours(cases)}, {_bill(cases)}"
    return [*terminal.table([heading, *map(_row, cases)], right={1, 2, 3, 4}), "", total]


def total_document(cases: Sequence[Case]) -> dict[str, Any]:
    """``{jobs, device_hours, dollars}``; dollars are null where a price is unknown."""
    return {
        "jobs": len(cases),
        "device_hours": sum(case.device_hours for case in cases),
        "dollars": total_dollars(cases),
    }


def total_dollars(cases: Iterable[Case]) -> float | None:
    """Of all jobs; None when one price is unknown."""
    bills = [case.plan.cost.dollars for case in cases]
    return None if None in bills else sum(filter(None, bills))


def _row(case: Case) -> tuple[str, ...]:
    plan = case.plan
    verdict = "refused" if plan.errors else plan.memory.verdict.replace("_", " ")
    dollars = "unknown" if plan.cost.dollars is None else format_dollars(plan.cost.dollars)
    memory = f"{format_bytes(plan.memory.bytes_per_gpu)} {verdict}"
    step, hours = plan.time.step_seconds, plan.time.expected_hours
    return " ".join(case.words), memory, format_seconds(step), format_seconds(3600 * hours), dollars


def _bill(cases: Sequence[Case]) -> str:
    dollars = total_dollars(cases)
    return "dollars unknown" if dollars is None else format_dollars(dollars)


def _device_hours(cases: Sequence[Case]) -> str:
    from launcher.catalog.vm_sizes import find

    sizes = {find(case.recipe.cluster.instance_type) for case in cases}
    return "process-hours" if all(size.accelerator == "CPU" for size in sizes) else "GPU-hours"
