"""``[RECIPE] [key=value ...] [--recipes DIR]``: the words of every verb that composes a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from launcher.cli.invocation import Invocation
    from launcher.compose.composer import Composed

Function = TypeVar("Function", bound="Callable[..., Any]")


def recipe_words(function: Function) -> Function:
    """Add ``words`` (a recipe and overrides, in any order among the options) and ``recipe_dirs``."""
    words = click.argument("words", metavar="[RECIPE] [KEY=VALUE] ...", nargs=-1, shell_complete=_complete)
    return words(recipe_folders(function))


def recipe_folders(function: Function) -> Function:
    """Add ``recipe_dirs``."""
    option = click.option(
        "--recipes",
        "recipe_dirs",
        metavar="DIR",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A folder of recipes that goes before ours; repeatable.",
    )
    return option(function)


def compose_words(invocation: Invocation, words: Sequence[str], recipe_dirs: Sequence[Path]) -> Composed:
    """Compose the recipe that ``words`` ask for, and keep it in hand for errors; its notes are told."""
    from launcher.compose.composer import compose

    invocation.composed = compose(recipe_first(words), recipe_dirs=recipe_dirs)
    for note in invocation.composed.notes:
        invocation.say(f"note: {note}")
    return invocation.composed


def recipe_first(words: Sequence[str]) -> list[str]:
    """The words as the composer takes them: a recipe, the first word without ``=``, goes before the overrides."""
    names = [word for word in words if is_recipe_name(word)][:1]
    return [*names, *(word for word in words if word not in names)]


def is_recipe_name(word: str) -> bool:
    """Whether ``word`` names a recipe: overrides have ``=``, or begin with Hydra's ``~`` or ``+``."""
    return "=" not in word and not word.startswith(("~", "+"))


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from launcher.cli.candidates import recipe_candidates

    return recipe_candidates(incomplete, context.params.get("recipe_dirs") or ())
