"""Findings that mend: every edit is planned, kept only when its plan is accepted, and told with what it leads to."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from launcher.errors import PlanError
from launcher.plan.edits import memory_edits, plain_edits
from launcher.plan.findings import RefusedPlanError
from launcher.plan.overrides import apply_overrides, changes_convergence
from launcher.plan.plan import Edit
from launcher.units import format_bytes, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from launcher.plan.plan import Finding, Plan
    from launcher.recipe.schema import Recipe

    Planner = Callable[[Recipe], Plan]

MOST_EDITS = 3
MOST_TRIES = 6
"""Edits of one finding that are planned."""
DEEPEST = 5
"""Further edits one edit may need before its plan is accepted."""


class Way(NamedTuple):
    """Overrides whose plan has no errors."""

    overrides: tuple[str, ...]
    plan: Plan


def mended(recipe: Recipe, plan: Plan, planner: Planner) -> tuple[Finding, ...]:
    """The plan's findings: errors with up to three edits that are accepted, warnings with what their edits lead to."""
    return tuple(_mended(recipe, found, plan, planner) for found in plan.findings)


def refused(recipe: Recipe, error: PlanError, planner: Planner) -> PlanError:
    """The same refusal, every fault with a way out that can be pasted."""
    if not isinstance(error, RefusedPlanError):
        return error
    findings = tuple(_mended(recipe, found, None, planner) for found in error.findings)
    return RefusedPlanError(findings)


def _mended(recipe: Recipe, found: Finding, plan: Plan | None, planner: Planner) -> Finding:
    if found.level == "error":
        ways = _ways_out(recipe, found, plan, planner)
        return replace(found, edits=tuple(_told(way) for way in ways))
    if found.level == "warning":
        asked = [edit.overrides for edit in found.edits] or _tight_edits(recipe, found, plan)
        ways = [way for overrides in asked if (way := _accepted(recipe, overrides, planner))]
        return replace(found, edits=tuple(_told(way) for way in ways[:MOST_EDITS]))
    return found


def _tight_edits(recipe: Recipe, found: Finding, plan: Plan | None) -> list[tuple[str, ...]]:
    return list(memory_edits(recipe, plan))[:MOST_TRIES] if found.code == "plan.memory_tight" else []


def _ways_out(recipe: Recipe, found: Finding, plan: Plan | None, planner: Planner) -> list[Way]:
    """Accepted ways that begin with an edit of this finding, cheapest first; a plain layout when there is none."""
    ways = _distinct(
        way
        for overrides in _candidates(recipe, found, plan, planner)
        if (way := _completed(recipe, overrides, planner, depth=DEEPEST))
    )
    if not ways:
        ways = _distinct(way for overrides in plain_edits(recipe) if (way := _accepted(recipe, overrides, planner)))
    by_dollars = found.code == "plan.memory"  # a rule's own edits come in the order that keeps most of what was asked
    return sorted(ways, key=lambda way: _price(way, by_dollars=by_dollars))[:MOST_EDITS]


def _candidates(recipe: Recipe, found: Finding, plan: Plan | None, planner: Planner) -> Iterator[tuple[str, ...]]:
    yield from [edit.overrides for edit in found.edits][:MOST_TRIES]
    if found.code == "plan.memory":
        yield from memory_edits(recipe, plan)


def _completed(recipe: Recipe, overrides: tuple[str, ...], planner: Planner, *, depth: int) -> Way | None:
    """``overrides`` and what else they need: the first edit of the worst error left, and so on."""
    changed = _apply(recipe, overrides)
    errors, plan = _errors(changed, planner)
    if plan is not None and not errors:
        return Way(overrides, plan)
    if depth == 0 or not errors:
        return None
    for further in list(_candidates(changed, errors[0], plan, planner))[:MOST_TRIES]:
        way = _completed(recipe, _joined(overrides, further), planner, depth=depth - 1)
        if way:
            return way
    return None


def _accepted(recipe: Recipe, overrides: tuple[str, ...], planner: Planner) -> Way | None:
    errors, plan = _errors(_apply(recipe, overrides), planner)
    return Way(overrides, plan) if plan is not None and not errors else None


def _errors(recipe: Recipe, planner: Planner) -> tuple[tuple[Finding, ...], Plan | None]:
    try:
        plan = planner(recipe)
    except RefusedPlanError as refusal:
        return refusal.findings, None
    except PlanError:
        return (), None
    return plan.errors, plan


def _apply(recipe: Recipe, overrides: tuple[str, ...]) -> Recipe:
    return apply_overrides(recipe, overrides)


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Both, the later value of a key winning."""
    values = dict(override.split("=", 1) for override in (*first, *second))
    return tuple(f"{key}={value}" for key, value in values.items())


def _distinct(ways: Iterable[Way]) -> list[Way]:
    """The first few that differ."""
    found: dict[frozenset[str], Way] = {}
    for way in ways:
        found.setdefault(frozenset(way.overrides), way)
        if len(found) == MOST_TRIES:
            break
    return list(found.values())


def _price(way: Way, *, by_dollars: bool) -> tuple[bool, int, float, float]:
    """Mapping before convergence, few keys before many; then dollars, then hours."""
    dollars = way.plan.cost.dollars
    few = (changes_convergence(way.overrides), len(way.overrides))
    return (*few, inf if dollars is None else dollars, way.plan.time.hours) if by_dollars else (*few, 0.0, 0.0)


def _told(way: Way) -> Edit:
    """The edit with its effect: ``fits, 61.2 GiB, 3.1 s a step, $1,420``."""
    plan, verdict = way.plan, way.plan.memory.verdict
    words: list[str] = [] if verdict == "unknown" else [verdict]
    words += [format_bytes(plan.memory.bytes_per_gpu), f"{format_seconds(plan.time.step_seconds)} a step"]
    words += [] if plan.cost.dollars is None else [format_dollars(plan.cost.dollars)]
    return Edit(
        overrides=way.overrides,
        effect=", ".join(words),
        changes_convergence=changes_convergence(way.overrides),
    )
