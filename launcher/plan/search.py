"""``search``: the layouts, VM sizes and node counts that train a recipe best, and why. Pure: no clock, no disk.

Mapping keys alone are varied: whatever is found learns the same. On one cluster and node count the faster layout is
also the cheaper and the one that draws less, so each such place is searched for its fastest layouts, in the order of a
floor under their step time, until no floor is below what would still be of use: what is left out cannot be better.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Literal

from launcher.errors import PlanError
from launcher.plan.overrides import apply_overrides
from launcher.plan.planner import make_plan
from launcher.plan.search_ground import Ground
from launcher.plan.search_layouts import cuts, overrides, shardings, simplicity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from launcher.plan.plan import Plan
    from launcher.plan.rules.case import Case
    from launcher.plan.search_layouts import Cut, Sharding
    from launcher.recipe.schema import Recipe

Measure = Literal["dollars", "hours", "energy"]


@dataclass(frozen=True, kw_only=True)
class ClusterChoice:
    """One cluster to search on."""

    name: str
    """``nd_h100_v5``."""
    recipe: Recipe
    """The recipe composed with that choice: every candidate differs from it by its overrides."""
    overrides: tuple[str, ...] = ()
    """What makes the choice: ``("cluster=nd_h100_v5",)``."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One layout on one cluster, and what follows."""

    cluster: str
    instances: int
    overrides: tuple[str, ...]
    """Ready to paste after the recipe's name; the choice of cluster first."""
    plan: Plan
    """``make_plan`` of the recipe with these overrides: it has no errors."""
    affordable_tokens: int | None
    """Seen before the deadline and inside the budget; None when neither is given."""
    meets_limits: bool
    """Whether deadline and budget hold; an unknown price meets no budget."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A cluster and node count without a candidate, and why."""

    cluster: str
    instances: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """What a search found."""

    candidates: int
    """Layouts that the rules allow, over all clusters and node counts."""
    evaluated: int
    """Layouts whose memory or step time was computed; the others could not have been better."""
    minimize: Measure
    results: tuple[Candidate, ...]
    """Best first. Of the shardings of one cut of model and batch, the best alone is listed."""
    places: tuple[Candidate, ...]
    """The fastest of each cluster and node count, whether it meets the limits or not."""
    frontier: tuple[Candidate, ...]
    """Of the places, those that no other beats in both hours and dollars, soonest first. Where a price is unknown,
    places of the same cluster are held against each other by VM hours."""
    refusals: tuple[Refusal, ...]
    unpriced: tuple[str, ...]
    """Clusters whose price is unknown: last under dollars, out of any budget."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is allowed."""

    deadline_seconds: float | None
    """Wall time of the whole run, failures included."""
    budget_dollars: float | None

    def admit(self, plan: Plan) -> bool:
        """Whether ``plan`` is inside both."""
        soon = self.deadline_seconds is None or 3600 * plan.time.expected_hours <= self.deadline_seconds
        dollars = plan.cost.dollars
        return soon and (self.budget_dollars is None or (dollars is not None and dollars <= self.budget_dollars))

    def tokens(self, plan: Plan) -> int | None:
        """Tokens of whole steps that both allow on the plan's nodes."""
        shares = [inf]
        if self.deadline_seconds is not None:
            shares.append(self.deadline_seconds / (3600 * plan.time.expected_hours))
        if self.budget_dollars is not None and plan.cost.dollars:
            shares.append(self.budget_dollars / plan.cost.dollars)
        share = min(shares)
        return None if share == inf else int(share * plan.batch.train_steps) * plan.batch.tokens_per_step


@dataclass(frozen=True, kw_only=True)
class Found:
    """A layout that fits, before it is planned."""

    seconds: float
    cut: Cut
    sharding: Sharding

    def __lt__(self, other: Found) -> bool:
        """Faster first; of two as fast, the simpler."""
        return self.key < other.key

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the order."""
        return (self.seconds, *simplicity(self.cut, self.sharding))


def search(
    recipe: Recipe,
    *,
    clusters: Sequence[ClusterChoice] = (),
    instances: Iterable[int],
    deadline_seconds: float | None = None,
    budget_dollars: float | None = None,
    minimize: Measure = "dollars",
    top: int = 10,
) -> SearchResult:
    """The best layouts of ``recipe`` over ``clusters`` (its own, when none is given) and node counts.

    Deadline and budget restrict ``results``; the recipe's own ``limits.budget_dollars`` counts as one.
    """
    limits = Limits(deadline_seconds=deadline_seconds, budget_dollars=_least(budget_dollars, recipe))
    hunt = Hunt(limits=limits, minimize=minimize, top=top)
    counts = sorted(set(instances), reverse=minimize == "hours")
    for choice in clusters or [ClusterChoice(name=recipe.cluster.instance_type, recipe=recipe)]:
        bare = replace(choice, recipe=_without_budget(choice.recipe))
        ground = Ground(bare.recipe)
        for count in counts:
            hunt.visit(bare, ground, count)
    return hunt.result()


class Hunt:
    """One search under way."""

    def __init__(self, *, limits: Limits, minimize: Measure, top: int) -> None:
        self.limits, self.minimize, self.top = limits, minimize, top
        self.candidates = self.evaluated = 0
        self.best: list[float] = []
        """The measures of the ``top`` best admitted so far."""
        self.places: list[tuple[Place, list[Found]]] = []
        self.refusals: list[Refusal] = []

    def visit(self, choice: ClusterChoice, ground: Ground, instances: int) -> None:
        """Search one cluster at one node count."""
        refused = _unplannable(choice, ground)
        place = None if refused else Place(choice=choice, ground=ground, case=ground.case(instances))
        if place is None:
            self._refuse(choice, instances, refused or "")
            return
        floors = place.floors()
        self.candidates += place.layouts
        found = self._fastest(place, floors)
        if found and place.best is not None:
            self.places.append((place, found))
        else:
            self._refuse(choice, instances, place.reason or "no layout divides the batch, the layers and the heads")

    def _refuse(self, choice: ClusterChoice, instances: int, reason: str) -> None:
        self.refusals.append(Refusal(cluster=choice.name, instances=instances, reason=reason))
