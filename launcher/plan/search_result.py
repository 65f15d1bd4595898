"""What a search is given and what it finds. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from launcher.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

Measure = Literal["dollars", "hours", "energy"]
"""What is minimized: the bill, the wall time with failures, kilowatt-hours."""
BUDGET_CODE = "plan.budget"
"""The finding of a plan dearer than the recipe's own budget."""


@dataclass(frozen=True, kw_only=True)
class ClusterChoice:
    """One cluster to search on."""

    name: str
    """``nd_h100_v5``."""
    recipe: Recipe
    """The recipe composed with that choice: candidates differ from it by their overrides."""
    overrides: tuple[str, ...] = ()
    """What makes the choice: ``("cluster=nd_h100_v5",)``."""


@dataclass(frozen=True, kw_only=True)
class SearchLimits:
    """What is allowed; None is no limit."""

    deadline_seconds: float | None = None
    """Wall time of the whole run, failures included."""
    budget_dollars: float | None = None

    def admit(self, plan: Plan) -> bool:
        """Whether ``plan`` is inside both; an unknown price is inside no budget."""
        if self.deadline_seconds is not None and plan.time.expected_hours * SECONDS_PER_HOUR > self.deadline_seconds:
            return False
        dollars = plan.cost.dollars
        return self.budget_dollars is None or (dollars is not None and dollars <= self.budget_dollars)

    def tokens(self, plan: Plan) -> int | None:
        """Tokens of the whole steps that deadline and budget leave room for; None without either."""
        share = inf
        if self.deadline_seconds is not None:
            share = self.deadline_seconds / (plan.time.expected_hours * SECONDS_PER_HOUR)
        if self.budget_dollars is not None and plan.cost.dollars:
            share = min(share, self.budget_dollars / plan.cost.dollars)
        return None if share == inf else int(share * plan.batch.train_steps) * plan.batch.tokens_per_step


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One layout on one cluster, and what follows."""

    cluster: str
    instances: int
    overrides: tuple[str, ...]
    """Ready to paste after the recipe's name; the choice of cluster first."""
    layout: str
    """``fsdp zero2 tp4 pp16 vp8 dp72 micro1``: what the overrides come to; ``selective`` and ``full`` are recompute."""
    plan: Plan
    """Of the recipe with these overrides; without digests, like ``planner.bare_plan``."""
    affordable_tokens: int | None
    """Seen on these VMs before the deadline and inside the budget; None when neither is given."""
    meets_limits: bool


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
    limits: SearchLimits
    results: tuple[Candidate, ...]
    """Best first, inside the limits, each accepted by the planner. Of the shardings of one cut of model and batch only
    the best is listed, and of recomputes that cost nothing only the least."""
    places: tuple[Candidate, ...]
    """The fastest of each cluster and node count, inside the limits or not."""
    frontier: tuple[Candidate, ...]
    """Of the places, those that no other beats in both hours and dollars, soonest first; where a price is unknown,
    places of one cluster are held against each other by VM hours."""
    refusals: tuple[Refusal, ...]
    unpriced: tuple[str, ...]
    """Clusters whose price is unknown: last under dollars, outside any budget."""
    answers: tuple[str, ...]
    """Fewest VMs for the deadline, tokens affordable on the VMs: a sentence each."""
    reasons: tuple[str, ...]
    """Why the best is best, and why the recipe as it stands is not: a sentence each."""
