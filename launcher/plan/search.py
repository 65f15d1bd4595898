"""``search``: the layouts, VM sizes and node counts that train a recipe best, and why. Pure: no clock, no disk.

Mapping keys alone are varied: whatever is found learns the same. On one cluster and node count the faster layout is
also the cheaper and the one that draws less, so each such place is searched for its fastest layouts, in the order of a
floor under their step time, until no floor is below what would still be of use: what is left out cannot be better.
"""

from __future__ import annotations

from bisect import insort
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.overrides import apply_overrides
from launcher.plan.planner import bare_plan
from launcher.plan.search_ground import Ground, HeldBytes
from launcher.plan.search_layouts import overrides, words
from launcher.plan.search_place import Place
from launcher.plan.search_reasons import answers, reasons
from launcher.plan.search_result import BUDGET_CODE, Candidate, ClusterChoice, Refusal, SearchLimits, SearchResult
from launcher.units import SECONDS_PER_HOUR, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from launcher.plan.plan import Plan
    from launcher.plan.search_place import Found
    from launcher.plan.search_result import Measure
    from launcher.recipe.schema import Recipe


HEADROOM = 0.05
"""Half of what an 80 % interval of planned memory is wide to one side: nearly full is as likely to fail as to fit."""


def search(
    recipe: Recipe,
    *,
    clusters: Sequence[ClusterChoice] = (),
    instances: Iterable[int],
    deadline_seconds: float | None = None,
    budget_dollars: float | None = None,
    minimize: Measure = "dollars",
    top: int = 10,
    headroom: float = HEADROOM,
) -> SearchResult:
    """The best layouts of ``recipe`` over ``clusters`` (its own, when none is given) and node counts.

    Deadline and budget restrict ``results``; the recipe's own ``limits.budget_dollars`` counts as one. ``headroom`` is
    the share of usable device memory that is to stay free.
    """
    budgets = [each for each in (budget_dollars, recipe.limits.budget_dollars) if each is not None]
    limits = SearchLimits(deadline_seconds=deadline_seconds, budget_dollars=min(budgets, default=None))
    hunt = _Hunt(limits, minimize, top)
    held: HeldBytes = {}
    counts = sorted(set(instances), reverse=minimize == "hours")  # the likely best first: it narrows the rest
    for choice in clusters or [ClusterChoice(name=recipe.cluster.instance_type, recipe=recipe)]:
        ground = Ground(choice.recipe, headroom=headroom, held=held)
        for count in counts:
            hunt.visit(choice, ground, count)
    return hunt.result(recipe)


class Rank(NamedTuple):
    """What a search minimizes, so that an unknown price comes after every known one, by hours."""

    is_unknown: bool
    value: float


class _Spot(NamedTuple):
    """A searched place with what one second of its step comes to over the run."""

    choice: ClusterChoice
    instances: int
    found: list[Found]
    rank: Rank
    """Of a step of one second."""
    hours: float
    dollars: float | None

    def rank_of(self, found: Found) -> Rank:
        return self.rank._replace(value=self.rank.value * found.seconds)

    def seconds_of(self, rank: Rank) -> float:
        """The step that comes to ``rank``: none where that is priced and this place is not."""
        if rank.is_unknown != self.rank.is_unknown:
            return inf if rank.is_unknown else 0.0
        return rank.value / self.rank.value if self.rank.value else inf

    def allowed_seconds(self, limits: SearchLimits) -> float:
        """The longest step inside deadline and budget."""
        allowed = inf
        if limits.deadline_seconds is not None:
            allowed = limits.deadline_seconds / SECONDS_PER_HOUR / self.hours
        if limits.budget_dollars is None or self.dollars == 0:
            return allowed
        return 0.0 if self.dollars is None else min(allowed, limits.budget_dollars / self.dollars)


class _Hunt:
    """A search under way."""

    def __init__(self, limits: SearchLimits, minimize: Measure, top: int) -> None:
        self.limits, self.minimize, self.top = limits, minimize, top
        self.candidates = self.evaluated = 0
        self.best: list[Rank] = []
        self.spots: list[_Spot] = []
        self.refusals: list[Refusal] = []

    def visit(self, choice: ClusterChoice, ground: Ground, instances: int) -> None:
        """Search one cluster at one node count."""
        if ground.accelerator is None:
            self._refuse(choice, instances, "cluster.accelerator does not say which GPU this machine has")
            return
        place, spots = Place(ground, instances), list[_Spot]()

        def useful(found: Found) -> float:
            if not spots:
                spots.append(self._spot(choice, instances, found))
            spot = spots[0]
            allowed = spot.allowed_seconds(self.limits)
            if found.seconds <= allowed:
                insort(self.best, spot.rank_of(found))
            worst = spot.seconds_of(self.best[self.top - 1]) if len(self.best) >= self.top else inf
            return min(allowed, worst)

        found = place.fastest(useful)
        self.candidates, self.evaluated = self.candidates + place.layouts, self.evaluated + place.evaluated
        if found:
            self.spots.append(spots[0]._replace(found=found))
        else:
            self._refuse(choice, instances, _nothing(place))

    def _spot(self, choice: ClusterChoice, instances: int, found: Found) -> _Spot:
        plan = bare_plan(_recipe(choice, instances, found))
        step, dollars = plan.time.step_seconds, plan.cost.dollars
        rank = _rank(plan, self.minimize)
        return _Spot(
            choice=choice,
            instances=instances,
            found=[],
            rank=rank._replace(value=rank.value / step),
            hours=plan.time.expected_hours / step,
            dollars=None if dollars is None else dollars / step,
        )

    def _refuse(self, choice: ClusterChoice, instances: int, reason: str) -> None:
        self.refusals.append(Refusal(cluster=choice.name, instances=instances, reason=reason))

    def result(self, recipe: Recipe) -> SearchResult:
        """What was found, planned."""
        places = tuple(filter(None, map(self._fastest, self.spots)))
        results = tuple(self._ranked())
        return SearchResult(
            candidates=self.candidates,
            evaluated=self.evaluated,
            minimize=self.minimize,
            limits=self.limits,
            results=results,
            places=places,
            frontier=frontier(places),
            refusals=tuple(self.refusals),
            unpriced=tuple(dict.fromkeys(each.cluster for each in places if each.plan.cost.dollars is None)),
            answers=answers(places, self.limits),
            reasons=reasons(results, self._others(recipe, results)),
        )

    def _others(self, recipe: Recipe, results: Sequence[Candidate]) -> list[tuple[str, Recipe]]:
        """What comes to mind first: the recipe as it stands, and its own layout where the best runs."""
        others = [("the recipe as it stands", recipe)]
        for spot in self.spots:
            if results and (spot.choice.name, spot.instances) == (results[0].cluster, results[0].instances):
                there = apply_overrides(spot.choice.recipe, (f"cluster.instance_count={spot.instances}",))
                others += [("the recipe's own layout on these VMs", there)] if there != recipe else []
        return others

    def _fastest(self, spot: _Spot) -> Candidate | None:
        """The fastest layout of a place that the plan accepts, whatever it costs."""
        candidates = (self._candidate(spot, found) for found in spot.found)
        faults: list[str] = []
        for candidate in candidates:
            wrong = [finding.message for finding in candidate.plan.errors if finding.code != BUDGET_CODE]
            if not wrong:
                return candidate
            faults += wrong
        self._refuse(spot.choice, spot.instances, faults[0])
        return None

    def _ranked(self) -> list[Candidate]:
        """The best that the plan accepts and the limits admit, best first."""
        every = sorted(
            (
                (spot.rank_of(found), spot.instances, number, found)
                for number, spot in enumerate(self.spots)
                for found in spot.found
            ),
            key=lambda each: each[:3],
        )
        ranked: list[Candidate] = []
        for _, _, number, found in every:
            candidate = self._candidate(self.spots[number], found)
            if candidate.meets_limits and not candidate.plan.errors:
                ranked.append(candidate)
            if len(ranked) == self.top:
                break
        return ranked

    def _candidate(self, spot: _Spot, found: Found) -> Candidate:
        recipe = spot.choice.recipe
        plan = bare_plan(_recipe(spot.choice, spot.instances, found))
        return Candidate(
            cluster=spot.choice.name,
            instances=spot.instances,
            overrides=(*spot.choice.overrides, *overrides(recipe, spot.instances, found.cut, found.sharding)),
            layout=words(found.cut, found.sharding),
            plan=plan,
            affordable_tokens=self.limits.tokens(plan),
            meets_limits=self.limits.admit(plan),
        )


def frontier(places: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The places that no other beats in both time and money, soonest first."""
    ordered = sorted(places, key=lambda each: (each.plan.time.expected_hours, each.instances, each.cluster))
    return tuple(each for each in ordered if not any(_beats(other, each) for other in places))


def _beats(one: Candidate, other: Candidate) -> bool:
    mine, theirs = (each.plan.cost.dollars for each in (one, other))
    if mine is None or theirs is None:
        if one.cluster != other.cluster:
            return False
        mine, theirs = (each.instances * each.plan.time.expected_hours for each in (one, other))
    ours, others = (one.plan.time.expected_hours, mine), (other.plan.time.expected_hours, theirs)
    return ours != others and ours[0] <= others[0] and ours[1] <= others[1]


def _rank(plan: Plan, minimize: Measure) -> Rank:
    value = {
        "dollars": plan.cost.dollars,
        "hours": plan.time.expected_hours,
        "energy": plan.energy.kilowatt_hours,
    }[minimize]
    return Rank(value is None, plan.time.expected_hours if value is None else value)


def _recipe(choice: ClusterChoice, instances: int, found: Found) -> Recipe:
    return apply_overrides(choice.recipe, overrides(choice.recipe, instances, found.cut, found.sharding))


def _nothing(place: Place) -> str:
    """Why a place has no layout."""
    if not place.layouts:
        return "no layout divides batch, layers and heads over so many ranks"
    if place.least_bytes == inf:
        return "no layout fits the host's memory"
    return f"nothing fits: the smallest layout needs {format_bytes(place.least_bytes)} a GPU"
