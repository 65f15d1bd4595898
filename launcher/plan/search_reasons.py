"""Sentences about what a search found: what fits the limits, why the best is best, why the obvious one is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.errors import PlanError
from launcher.plan.planner import bare_plan
from launcher.units import SECONDS_PER_HOUR, format_bytes, format_count, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from launcher.plan.plan import Plan
    from launcher.plan.search_result import Candidate, SearchLimits
    from launcher.recipe.schema import Recipe

NOTICED = 0.01
"""Share of the GPU time of a step below which a difference is not told."""


def answers(places: Sequence[Candidate], limits: SearchLimits) -> tuple[str, ...]:
    """Of GPUs, time and tokens, what follows from the two that are given."""
    if limits.deadline_seconds is None and limits.budget_dollars is None:
        return ()
    bounds = _bounds(limits)
    return tuple(
        sentence
        for cluster in dict.fromkeys(place.cluster for place in places)
        for sentence in _cluster_answers([place for place in places if place.cluster == cluster], bounds)
    )


def reasons(results: Sequence[Candidate], others: Sequence[tuple[str, Recipe]]) -> tuple[str, ...]:
    """Why the first result is first, and why the second and ``others`` (a name and a recipe each) are not."""
    if not results:
        return ()
    best = results[0]
    losing = [sentence for name, recipe in others for sentence in _why_not(name, recipe, best.plan)]
    return (*_why_best(best.plan), *_why_not_next(results), *losing)


def _bounds(limits: SearchLimits) -> str:
    parts = []
    if limits.deadline_seconds is not None:
        parts.append(format_seconds(limits.deadline_seconds))
    if limits.budget_dollars is not None:
        parts.append(format_dollars(limits.budget_dollars))
    return " and ".join(parts)


def _cluster_answers(places: list[Candidate], bounds: str) -> Iterator[str]:
    """Fewest VMs that finish, else how far the VMs get."""
    enough = [place for place in places if place.meets_limits]
    if enough:
        fewest = min(enough, key=lambda place: place.instances)
        tokens, room = fewest.plan.batch.train_tokens, fewest.affordable_tokens or 0
        yield (
            f"{format_count(tokens)} tokens within {bounds}: at least {_vms(fewest)}, "
            f"{_outcome(fewest.plan)} (room for {format_count(room)} tokens)"
        )
        return
    known = [place for place in places if place.affordable_tokens is not None]
    if known:
        furthest = max(known, key=lambda place: (place.affordable_tokens or 0, -place.instances))
        tokens = furthest.plan.batch.train_tokens
        yield (
            f"{format_count(tokens)} tokens do not fit {bounds} on {furthest.cluster}: {_vms(furthest)} get furthest, "
            f"{format_count(furthest.affordable_tokens or 0)} tokens; all take {_outcome(furthest.plan)}"
        )


def _vms(place: Candidate) -> str:
    return f"{place.instances:,} x {place.cluster} ({place.plan.topology.world_size:,} ranks)"


def _outcome(plan: Plan) -> str:
    dollars = "price unknown" if plan.cost.dollars is None else format_dollars(plan.cost.dollars)
    return f"{format_seconds(plan.time.expected_hours * SECONDS_PER_HOUR)}, {dollars}"


def _why_best(plan: Plan) -> Iterator[str]:
    largest = sorted(plan.time.lines, key=lambda line: -line.seconds)[:3]
    shares = ", ".join(f"{line.name} {line.seconds / plan.time.step_seconds:.0%}" for line in largest)
    mfu = f"; MFU {plan.time.mfu:.0%}" if plan.time.mfu is not None else ""
    yield f"best: a step of {format_seconds(plan.time.step_seconds)}, of it {shares}{mfu}"
    held, usable = plan.memory.bytes_per_gpu, plan.memory.usable_bytes
    if usable is not None:
        yield f"best: {format_bytes(held)} of {format_bytes(usable)} a GPU ({held / usable:.0%})"


def _why_not_next(results: Sequence[Candidate]) -> Iterator[str]:
    if len(results) > 1:
        second = results[1]
        name = f"the next ({second.instances:,} x {second.cluster}, {second.layout})"
        yield f"{name}: {_loss(second.plan, results[0].plan)}"


def _why_not(name: str, recipe: Recipe, best: Plan) -> Iterator[str]:
    try:
        plan = bare_plan(recipe)
    except PlanError as error:
        yield f"{name} cannot run: {error.faults[0].what}"
        return
    if plan == best:
        yield f"{name} is the best found"
    elif plan.errors:
        yield f"{name} is refused: {plan.errors[0].message}"
    else:
        yield f"{name} ({plan.hardware}; {plan.topology.equation}): {_loss(plan, best)}"


def _loss(plan: Plan, best: Plan) -> str:
    """How many more GPU hours, and on what; against the best."""
    mine, ours = _gpu_seconds(plan), _gpu_seconds(best)
    total = sum(ours.values())
    change = sum(mine.values()) / total - 1
    differences = {name: mine.get(name, 0.0) - ours.get(name, 0.0) for name in {**mine, **ours}}
    told = sorted(
        (name for name in differences if abs(differences[name]) >= NOTICED * total),
        key=lambda name: -abs(differences[name]),
    )
    causes = ", ".join(f"{name} {differences[name] / total:+.0%}" for name in told[:3])
    hours = plan.time.expected_hours / best.time.expected_hours - 1
    text = f"{change:+.1%} GPU time a token, {hours:+.1%} hours"
    if plan.cost.dollars is not None and best.cost.dollars:
        text += f", {plan.cost.dollars / best.cost.dollars - 1:+.1%} dollars"
    return f"{text} ({causes})" if causes else text


def _gpu_seconds(plan: Plan) -> dict[str, float]:
    """GPU seconds a token, by cause."""
    ranks = plan.topology.world_size / plan.batch.tokens_per_step
    seconds: dict[str, float] = {}
    for line in plan.time.lines:
        name = "recompute" if line.name.startswith("recompute") else line.name
        seconds[name] = seconds.get(name, 0.0) + line.seconds * ranks
    return seconds
