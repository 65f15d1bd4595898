"""``launcher diff``: what differs between two recipes or runs, and what that does to memory, time and dollars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.explain import TAGS
from launcher.cli.handles import resolve_handle
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.places import format_value
from launcher.cli.recipe_words import compose_words, is_recipe_name, recipe_words
from launcher.errors import PlanError, UsageError
from launcher.units import format_bytes, format_count, format_dollars, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.plan.plan import Plan
    from launcher.recipe.diff import Change
    from launcher.recipe.schema import Recipe


@click.command(cls=Verb)
@recipe_words
@click.pass_obj
def command(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...]) -> None:
    """Show what differs between two recipes or runs, and what follows from it.

    launcher diff llama3/8b qwen3/8b
    launcher diff gpt/13b gpt/13b training.micro_batch_size=2     overrides belong to the name before them
    launcher diff gpt/13b training.micro_batch_size=2             the same, shorter
    launcher diff local:gpt-tiny-5d0c91aa7be2f013-1 latest
    """
    from launcher.recipe.diff import changes

    left, right = (_side(invocation, side, recipe_dirs) for side in sides(words))
    found = changes(left.recipe, right.recipe)
    document = {
        "left": _document(left),
        "right": _document(right),
        "changes": [
            {
                "key": change.key,
                "tag": change.tag,
                "left": _shown(change, change.left),
                "right": _shown(change, change.right),
            }
            for change in found
        ],
    }
    invocation.answer(document, lambda: "\n".join([*_change_lines(found), *_outcome_lines(left, right)]))


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two: what was asked, and what follows."""

    title: str
    recipe: Recipe
    plan: Plan | None
    refusal: str | None
    """Why there is no plan."""


def sides(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of the left and of the right: each begins with a name, its overrides follow it.

    Raises:
        UsageError: there are not two sides.
    """
    starts = [position for position, word in enumerate(words) if is_recipe_name(word)]
    if len(starts) == 2 and starts[0] == 0:
        return words[: starts[1]], words[starts[1] :]
    if len(starts) == 1 and starts[0] == 0 and len(words) > 1:
        return words[:1], words
    raise UsageError(
        "which two?",
        allowed="two recipes or runs, each with overrides after it; or one, and overrides",
        suggestion="launcher diff llama3/8b qwen3/8b",
    )


def _side(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...]) -> Side:
    from launcher.plan.planner import make_plan

    recipe = _recipe(invocation, words, recipe_dirs)
    try:
        plan, refusal = make_plan(recipe), None
    except PlanError as error:
        plan, refusal = None, error.faults[0].what
    more = f" + {len(words) - 1} override{'s' if len(words) > 2 else ''}" if len(words) > 1 else ""
    return Side(title=words[0] + more, recipe=recipe, plan=plan, refusal=refusal)


def _recipe(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...]) -> Recipe:
    """Composed, or as a run was asked for."""
    from launcher.backends import backend_names
    from launcher.runs.journal import LATEST
    from launcher.runs.remembered import recipe_of

    name = words[0]
    if name != LATEST and name.partition(":")[0] not in backend_names():
        return compose_words(invocation, words, recipe_dirs).recipe
    if len(words) > 1:
        raise UsageError(f"{name} has run: no override changes it", suggestion=f"launcher diff {name} RECIPE")
    return recipe_of(resolve_handle(invocation, name))


def _shown(change: Change, value: Any) -> Any:
    """A value of ``change`` without secrets."""
    from launcher.recipe.redact import redact

    return redact(value, name=change.key.rsplit(".", 1)[-1])


def _document(side: Side) -> dict[str, Any]:
    plan = side.plan
    planned = None
    if plan is not None:
        planned = {
            "parameters": plan.parameters,
            "world_size": plan.topology.world_size,
            "tokens_per_step": plan.batch.tokens_per_step,
            "memory_bytes_per_gpu": plan.memory.bytes_per_gpu,
            "verdict": plan.memory.verdict,
            "step_seconds": plan.time.step_seconds,
            "tokens_per_second": plan.time.tokens_per_second,
            "hours": plan.time.hours,
            "dollars": plan.cost.dollars,
        }
    return {"name": side.title, "planned": planned, "refused": side.refusal}


def _change_lines(found: tuple[Change, ...]) -> list[str]:
    from launcher.recipe.diff import by_tag

    if not found:
        return ["the two ask for the same", ""]
    lines: list[str] = []
    for tag, group in by_tag(found).items():
        rows = [(change.key, f"{_text(change, change.left)} -> {_text(change, change.right)}") for change in group]
        lines += [terminal.bold(f"{TAGS[tag]} ({tag})"), *("  " + line for line in terminal.table(rows, gap=4)), ""]
    return lines


def _text(change: Change, value: Any) -> str:
    return format_value(_shown(change, value))


def _outcome_lines(left: Side, right: Side) -> list[str]:
    refused = [f"{side.title}: no plan, {side.refusal}" for side in (left, right) if side.refusal]
    if left.plan is None or right.plan is None:
        return refused
    rows = [_outcome_row(name, left.plan, right.plan, value, text) for name, (value, text) in OUTCOMES.items()]
    errors = [side.title for side in (left, right) if side.plan and side.plan.errors]
    return [
        *terminal.table([("", left.title, right.title, ""), *rows], gap=4),
        *(f"{title} is refused as it is: launcher plan says why" for title in errors),
    ]


OUTCOMES: dict[str, tuple[Callable[[Plan], float | None], Callable[[float], str]]] = {
    "parameters": (lambda plan: plan.parameters, format_count),
    "ranks": (lambda plan: plan.topology.world_size, "{:,}".format),
    "tokens a step": (lambda plan: plan.batch.tokens_per_step, format_count),
    "memory per GPU": (lambda plan: plan.memory.bytes_per_gpu, format_bytes),
    "step": (lambda plan: plan.time.step_seconds, format_seconds),
    "tokens/s": (lambda plan: plan.time.tokens_per_second, format_count),
    "running": (lambda plan: 3600 * plan.time.hours, format_seconds),
    "dollars": (lambda plan: plan.cost.dollars, format_dollars),
}
"""What is set side by side: its value in a plan, and how a person reads it."""


def _outcome_row(
    name: str, left: Plan, right: Plan, value: Callable[[Plan], float | None], text: Callable[[float], str]
) -> tuple[str, ...]:
    before, after = value(left), value(right)
    texts = ["unknown" if each is None else text(each) for each in (before, after)]
    change = f"{100 * (after / before - 1):+.0f} %" if before and after is not None and before != after else ""
    return (name, *texts, change)
