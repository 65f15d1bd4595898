"""``launcher explain KEY``: what a key means, what it accepts, and where its present value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from launcher.cli import terminal
from launcher.cli.invocation import Invocation, Verb
from launcher.cli.places import format_value, key_places
from launcher.cli.recipe_words import compose_words, recipe_words
from launcher.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from launcher.compose.composer import Composed
    from launcher.recipe.keys import Key


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from launcher.cli.candidates import key_candidates

    return key_candidates(incomplete)


@click.command(cls=Verb)
@click.argument("key", required=False, shell_complete=_complete)
@recipe_words
@click.pass_obj
def command(invocation: Invocation, key: str | None, words: tuple[str, ...], recipe_dirs: tuple[Path, ...]) -> None:
    """Explain a recipe key; a section, or part of a key, lists its keys.

    launcher explain parallelism.zero_stage
    launcher explain training.micro_batch_size gpt/13b     and its value in this recipe
    launcher explain parallelism                           the keys of a section
    """
    composed = compose_words(invocation, words, recipe_dirs) if words else None
    keys = matching_keys(key or "")
    if len(keys) == 1:
        invocation.answer(_document(keys[0], composed), lambda: "\n".join(_card(keys[0], composed)))
        return
    invocation.answer(
        {"keys": [_document(each, composed) for each in keys]},
        lambda: "\n".join(_listing(key or "", keys, composed)),
    )


def matching_keys(word: str) -> tuple[Key, ...]:
    """The key of that name; else the keys under that section, else those that contain the word.

    Raises:
        UsageError: no key contains it.
    """
    from launcher.recipe.fields import nearest_keys
    from launcher.recipe.keys import all_keys, find_key

    exact = find_key(word)
    if exact is not None:
        return (exact,)
    under = tuple(key for key in all_keys() if key.path.startswith(f"{word}.") or not word)
    found = under or tuple(key for key in all_keys() if word.lower() in key.path)
    if not found:
        near = nearest_keys(word)
        raise UsageError(
            f"no key '{word}'",
            suggestion="\n".join(f"launcher explain {path}" for path in near) or "launcher explain",
        )
    return found


def _document(key: Key, composed: Composed | None) -> dict[str, Any]:
    place = next(iter(key_places([key.path], composed)), None)
    return {
        "key": key.path,
        "meaning": plain(key.meaning),
        "type": key.type,
        "allowed": key.allowed,
        "choices": list(key.choices),
        "default": key.default,
        "required": key.is_required,
        "tag": key.tag,
        "value": place.value if place else None,
        "origin": place.origin if place else None,
    }


def _card(key: Key, composed: Composed | None) -> list[str]:
    rows = [
        ("type", key.type),
        ("allowed", key.allowed),
        ("default", "none: a recipe must give it" if key.is_required else format_value(key.default)),
        ("tag", f"{key.tag}: {TAGS[key.tag]}"),
        *(("value", f"{place.value}     {place.origin}") for place in key_places([key.path], composed)),
    ]
    return [
        terminal.bold(key.path),
        *("  " + line for line in terminal.wrapped(plain(key.meaning), terminal.width() - 2)),
        *(f"  {label:<9}{text}" for label, text in rows),
    ]


TAGS = {
    "convergence": "changes what is learnt",
    "mapping": "changes only where and how fast it is computed",
    "runtime": "changes how the run is watched, stored or stopped",
    "metadata": "changes nothing",
}


def _listing(word: str, keys: tuple[Key, ...], composed: Composed | None) -> list[str]:
    from launcher.recipe.keys import section_meaning

    meaning = section_meaning(word) if word else None
    heading = [f"{terminal.bold(word)}  {plain(meaning)}", ""] if meaning else []
    rows = [(key.path, _value(key, composed), key.tag, plain(key.meaning)) for key in keys]
    return [*heading, *terminal.titled_table(("key", "value" if composed else "default", "tag", "meaning"), rows)]


def plain(docstring: str) -> str:
    """A docstring on one line, without its markup."""
    return " ".join(docstring.replace("``", "").split())


def _value(key: Key, composed: Composed | None) -> str:
    place = next(iter(key_places([key.path], composed)), None)
    if place is not None:
        return place.value or ""
    return "(required)" if key.is_required else format_value(key.default)
