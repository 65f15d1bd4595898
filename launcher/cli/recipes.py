"""``launcher recipes``: what there is to start from, how big it is, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.places import key_places
from launcher.cli.plan import refusal
from launcher.cli.recipe_words import compose_words, recipe_folders
from launcher.errors import LauncherError, UsageError
from launcher.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from launcher.compose.composer import Composed
    from launcher.compose.library import Choice
    from launcher.errors import Fault
    from launcher.plan.plan import Plan


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from launcher.compose.library import groups, recipe_names, search_path

    dirs = context.params.get("recipe_dirs") or ()
    words = ("show", *groups(search_path(dirs)), *recipe_names(dirs))
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


@click.command(cls=Verb)
@click.argument(
    "words", metavar="[WORD ... | GROUP [WORD ...] | show NAME [KEY=VALUE ...]]", nargs=-1, shell_complete=_complete
)
@recipe_folders
@click.pass_obj
def command(invocation: Invocation, words: tuple[str, ...], recipe_dirs: tuple[Path, ...]) -> None:
    """List recipes with their size, GPUs and predicted memory; or the choices of a group; or one recipe, resolved.

    launcher recipes                 every recipe
    launcher recipes llama 70b       those with all of these words
    launcher recipes cluster h100    choices of a group (cluster, model, parallelism, ...)
    launcher recipes show gpt/13b    every key of a recipe, and where it was set
    """
    from launcher.compose.library import groups, search_path

    if words[:1] == ("show",):
        _show(invocation, words[1:], recipe_dirs)
    elif words and words[0] in groups(search_path(recipe_dirs)):
        _list_choices(invocation, words[0], words[1:], recipe_dirs)
    else:
        _list_recipes(invocation, words, recipe_dirs)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A recipe of the list: its plan, and what forbids running it."""

    choice: Choice
    plan: Plan | None
    refusal: Fault | None


def _list_recipes(invocation: Invocation, words: Sequence[str], recipe_dirs: Sequence[Path]) -> None:
    entries = [_entry(choice, recipe_dirs) for choice in _matching("recipe", words, recipe_dirs)]
    header = ("recipe", "parameters", "runs on", "ranks", "memory per GPU", "")
    invocation.answer(
        {"recipes": [_entry_document(entry) for entry in entries]},
        lambda: "\n".join(terminal.titled_table(header, map(_entry_row, entries), right={1, 3})),
    )


def _list_choices(invocation: Invocation, group: str, words: Sequence[str], recipe_dirs: Sequence[Path]) -> None:
    choices = _matching(group, words, recipe_dirs)
    invocation.answer(
        {
            "group": group,
            "choices": [
                {"name": choice.name, "description": choice.description, "file": choice.shown} for choice in choices
            ],
        },
        lambda: "\n".join(
            terminal.titled_table(
                (group, "", "file"), ((choice.name, choice.description, choice.shown) for choice in choices)
            )
        ),
    )


def _matching(group: str, words: Sequence[str], recipe_dirs: Sequence[Path]) -> list[Choice]:
    """The choices whose name or description has every word.

    Raises:
        UsageError: none has.
    """
    from launcher.compose.library import group_choices
    from launcher.registry import nearest

    choices = group_choices(group, recipe_dirs)
    found = [
        choice
        for choice in choices
        if all(word.lower() in f"{choice.name} {choice.description}".lower() for word in words)
    ]
    if not found:
        near = nearest(words[0], [choice.name for choice in choices]) if words else ()
        raise UsageError(
            f"no {group} matches {' '.join(words)}" if words else f"no {group} at all",
            suggestion="\n".join(near) or ("launcher recipes" if group == "recipe" else f"launcher recipes {group}"),
        )
    return found


def _entry(choice: Choice, recipe_dirs: Sequence[Path]) -> Entry:
    from launcher.compose.composer import compose
    from launcher.plan.planner import make_plan

    try:
        plan = make_plan(compose([f"recipe={choice.name}"], recipe_dirs=recipe_dirs).recipe)
    except LauncherError as error:
        return Entry(choice=choice, plan=None, refusal=error.faults[0])
    refused = refusal(plan)
    return Entry(choice=choice, plan=plan, refusal=refused.faults[0] if refused else None)


def _entry_document(entry: Entry) -> dict[str, Any]:
    plan = entry.plan
    return {
        "name": entry.choice.name,
        "description": entry.choice.description,
        "file": entry.choice.shown,
        "parameters": plan.parameters if plan else None,
        "hardware": plan.hardware if plan else None,
        "world_size": plan.topology.world_size if plan else None,
        "memory_bytes_per_gpu": plan.memory.bytes_per_gpu if plan else None,
        "usable_bytes": plan.memory.usable_bytes if plan else None,
        "verdict": plan.memory.verdict if plan else None,
        "refused": entry.refusal.what if entry.refusal else None,
    }


def _entry_row(entry: Entry) -> tuple[str, ...]:
    plan = entry.plan
    if plan is None:
        return (entry.choice.name, "", "", "", "", _verdict(entry))
    usable = f" of {format_bytes(plan.memory.usable_bytes)}" if plan.memory.usable_bytes else ""
    return (
        entry.choice.name,
        format_count(plan.parameters),
        plan.hardware.partition(" (")[0],
        str(plan.topology.world_size),
        f"{format_bytes(plan.memory.bytes_per_gpu)}{usable}",
        _verdict(entry),
    )


def _verdict(entry: Entry) -> str:
    """Whether it fits, or the code of what forbids it (``launcher plan`` says more)."""
    if entry.refusal is not None:
        return terminal.red(f"refused: {entry.refusal.code}")
    return entry.plan.memory.verdict.replace("_", " ") if entry.plan else ""


def _show(invocation: Invocation, words: Sequence[str], recipe_dirs: Sequence[Path]) -> None:
    from launcher.recipe.codec import encode
    from launcher.recipe.redact import redact, redact_override

    if not words:
        raise UsageError("which recipe?", suggestion="launcher recipes show NAME")
    composed = compose_words(invocation, words, recipe_dirs)
    places = key_places(_paths(encode(composed.recipe)), composed)
    invocation.answer(
        {
            "name": composed.recipe.name,
            "overrides": [redact_override(word) for word in words],
            "recipe": redact(encode(composed.recipe)),
            "origins": {place.key: place.origin for place in places},
        },
        lambda: "\n".join(_resolved_lines(composed)),
    )


def _resolved_lines(composed: Composed) -> list[str]:
    from launcher.recipe.codec import encode

    places = key_places(_paths(encode(composed.recipe)), composed)
    return terminal.table((terminal.dim(place.origin), f"{place.key} = {place.value}") for place in places)


def _paths(section: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys of everything that is not a mapping with keys in it."""
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield prefix + name
