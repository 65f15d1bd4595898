"""Findings that mend: every edit is planned, kept only when its plan is accepted, and told with what it leads to.

A way out is followed one edit after the other, never back, so that a refused recipe is answered after a bounded number
of plans: ``MOST_PLANS`` for all findings together, and a plain layout for those nothing simpler mends.
"""

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
    from collections.abc import Callable, Iterable

    from launcher.plan.plan import Finding, Plan
    from launcher.recipe.schema import Recipe

    Planner = Callable[[Recipe], Plan]
    Overrides = tuple[str, ...]

MOST_EDITS = 3
MOST_TRIES = 6
"""Edits of one finding that are planned."""
MOST_PLANS = 20
"""Plans that all findings together may take, plain layouts apart."""
DEEPEST = 8
"""Further edits one edit may need before its plan is accepted."""


class Way(NamedTuple):
    """Overrides whose plan is accepted."""

    overrides: Overrides
    plan: Plan


class Trial(NamedTuple):
    """What planning some overrides led to."""

    errors: tuple[Finding, ...]
    """Those that some edit could mend."""
    plan: Plan | None


class Trials:
    """Plans of one recipe under overrides: each computed once, so many and no more."""

    def __init__(self, recipe: Recipe, planner: Planner, findings: Iterable[Finding]) -> None:
        self.recipe = recipe
        self.left = MOST_PLANS
        self._planner = planner
        self._known: dict[frozenset[str], Trial] = {}
        self._unmendable = {found.code for found in findings if found.level == "error" and not _is_mendable(found)}
        self._plain: list[Way] | None = None

    def trial(self, overrides: Overrides) -> Trial:
        """The plan under ``overrides``, counted unless it is known."""
        key = frozenset(overrides)
        if key not in self._known:
            self.left -= 1
            self._known[key] = self._taken(apply_overrides(self.recipe, overrides))
        return self._known[key]

    def accepted(self, overrides: Overrides) -> Way | None:
        """``overrides`` as a way, when nothing is wrong with their plan that an edit could mend."""
        errors, plan = self.trial(overrides)
        return Way(overrides, plan) if plan is not None and not errors else None

    def completed(self, overrides: Overrides) -> Way | None:
        """``overrides`` and what else they need: an edit of the worst error left, and so on."""
        for _ in range(DEEPEST):
            errors, plan = self.trial(overrides)
            if plan is not None and not errors:
                return Way(overrides, plan)
            further = self._step(overrides, errors[0], plan) if errors and self.left > 0 else None
            if further is None or frozenset(further) == frozenset(overrides):
                return None
            overrides = further
        return self.accepted(overrides)

    def plain(self) -> list[Way]:
        """The first plain layout that is accepted, whatever it takes: the same for every finding."""
        if self._plain is None:
            self.left = MOST_PLANS
            fitting = (overrides for overrides in plain_edits(self.recipe) if self._fits(overrides))
            found = next((way for overrides in fitting if (way := self.completed(overrides))), None)
            self._plain = [found] if found else []
        return self._plain

    def _step(self, overrides: Overrides, error: Finding, plan: Plan | None) -> Overrides | None:
        """``overrides`` with an edit of ``error``: of several against too much memory, the first that is enough."""
        if error.code != "plan.memory":
            return _joined(overrides, error.edits[0].overrides) if error.edits else None
        changed = apply_overrides(self.recipe, overrides)
        choices = [_joined(overrides, further) for further in list(memory_edits(changed, plan))[:MOST_TRIES]]
        return next((choice for choice in choices if self.left > 0 and self._fits(choice)), None)

    def _fits(self, overrides: Overrides) -> bool:
        errors, plan = self.trial(overrides)
        return plan is not None and all(error.code != "plan.memory" for error in errors)

    def _taken(self, recipe: Recipe) -> Trial:
        try:
            plan = self._planner(recipe)
        except RefusedPlanError as refusal:
            return Trial(self._mendable(refusal.findings), None)
        except PlanError:
            return Trial((), None)
        return Trial(self._mendable(plan.errors), plan)

    def _mendable(self, errors: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(error for error in errors if error.code not in self._unmendable)


def mended(recipe: Recipe, plan: Plan, planner: Planner) -> tuple[Finding, ...]:
    """The plan's findings: errors with up to three edits that are accepted, warnings with what their edits lead to."""
    trials = Trials(recipe, planner, plan.findings)
    return tuple(_mended(found, plan, trials) for found in plan.findings)


def refused(recipe: Recipe, error: PlanError, planner: Planner) -> PlanError:
    """The same refusal, every fault with a way out that can be pasted."""
    if not isinstance(error, RefusedPlanError):
        return error
    trials = Trials(recipe, planner, error.findings)
    return RefusedPlanError(tuple(_mended(found, None, trials) for found in error.findings))


def _mended(found: Finding, plan: Plan | None, trials: Trials) -> Finding:
    if found.level == "error" and _is_mendable(found):
        return replace(found, edits=tuple(_told(way) for way in _ways_out(found, plan, trials)))
    if found.level == "warning":
        asked = [edit.overrides for edit in found.edits] or _tight_edits(found, plan, trials)
        ways = [way for overrides in asked if trials.left > 0 and (way := trials.accepted(overrides))]
        return replace(found, edits=tuple(_told(way) for way in ways[:MOST_EDITS]))
    return found


def _is_mendable(found: Finding) -> bool:
    """Whether the planner knows an edit: memory's are many, other rules bring their own."""
    return bool(found.edits) or found.code == "plan.memory"


def _tight_edits(found: Finding, plan: Plan | None, trials: Trials) -> list[Overrides]:
    return list(memory_edits(trials.recipe, plan))[:MOST_TRIES] if found.code == "plan.memory_tight" else []


def _ways_out(found: Finding, plan: Plan | None, trials: Trials) -> list[Way]:
    """Accepted ways that begin with an edit of this finding, cheapest first; a plain layout when there is none."""
    candidates = [edit.overrides for edit in found.edits]
    if found.code == "plan.memory":
        candidates += memory_edits(trials.recipe, plan)
    ways = _distinct(
        way for overrides in candidates[:MOST_TRIES] if trials.left > 0 and (way := trials.completed(overrides))
    )
    by_dollars = found.code == "plan.memory"  # a rule's own edits come in the order that keeps most of what was asked
    return sorted(ways or trials.plain(), key=lambda way: _price(way, by_dollars=by_dollars))[:MOST_EDITS]


def _joined(first: Overrides, second: Overrides) -> Overrides:
    """Both, the later value of a key winning."""
    values = dict(override.split("=", 1) for override in (*first, *second))
    return tuple(f"{key}={value}" for key, value in values.items())


def _distinct(ways: Iterable[Way]) -> list[Way]:
    """Those that differ."""
    return list({frozenset(way.overrides): way for way in ways}.values())


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
