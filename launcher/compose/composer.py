"""From the words on the command line to a recipe: guard, Hydra, references, decoder, in that order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hydra.errors import HydraException

from launcher.compose import command_line, hydra_door, library, references
from launcher.compose.origins import COMMAND_LINE, Origins
from launcher.compose.reading import Reading
from launcher.compose.refusal import retold
from launcher.compose.yaml_guard import RESERVED
from launcher.errors import Fault, RecipeError
from launcher.recipe import codec
from launcher.recipe.fields import as_text, template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from launcher.recipe.schema import Recipe

_EITHER_OR = (("training.train_steps", "training.train_tokens"),)
"""Pairs of which one is given: the one said last replaces the other."""


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A recipe, and how it came to be."""

    recipe: Recipe
    origins: Origins
    notes: tuple[str, ...]
    """Sentences the user should read: foreign words read as ours, a team's file that stands before ours."""
    choices: Mapping[str, str]
    """Group -> the choice made in it: ``{"recipe": "gpt/13b", "model": "gpt/13b", ...}``."""


def compose(overrides: Sequence[str], *, recipe_dirs: Sequence[Path] = ()) -> Composed:
    """The recipe that the words on the command line ask for.

    Args:
        overrides: ``["gpt/13b", "cluster=nd_h100_v5", "cluster.instance_count=16"]``; the first word may be a recipe.
        recipe_dirs: A team's own folders, searched before ours.

    Raises:
        RecipeError: with every fault found, each with its file and line or the override as typed.
    """
    roots = library.search_path(recipe_dirs)
    said = command_line.parse(overrides, roots)
    if said.faults:
        raise RecipeError(said.faults)
    reading = Reading(roots=roots, files=said.files)
    told = [override.hydra for override in said.overrides]
    try:
        merged = hydra_door.merge(reading, told)
    except HydraException as error:
        raise retold(error, reading) from error
    origins = Origins(
        overrides=said.overrides,
        documents=reading.documents,
        find_layers=lambda: hydra_door.layers(reading, merged, told),
    )
    choices = {group: str(said.files.get(f"{group}/{name}", name)) for group, name in merged.choices.items() if name}
    notes = [*said.notes, *reading.notes, *_settle_pairs(merged.tree, origins)]
    try:
        recipe = _decode(merged.tree, choices)
    except RecipeError as error:
        raise RecipeError([_located(fault, origins) for fault in error.faults]) from None
    return Composed(recipe=recipe, origins=origins, notes=tuple(notes), choices=choices)


def _decode(tree: dict[str, Any], choices: Mapping[str, str]) -> Recipe:
    reserved = [
        Fault(what=f"{key} would run code; recipes are data", keys=(key,), code="recipe.reserved")
        for key in _reserved_keys(tree, "")
    ]
    if reserved:
        raise RecipeError(reserved)
    resolved = references.resolve(_over(template(), tree))
    chosen = choices.get(library.RECIPE_GROUP)
    if resolved.get("name") == "unnamed" and chosen:
        resolved["name"] = chosen.removesuffix(".yaml")
    return codec.decode(resolved)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """``above`` laid over ``below``, section by section."""
    merged = dict(below)
    for name, value in above.items():
        under = below.get(name)
        merged[name] = _over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _reserved_keys(value: Any, prefix: str) -> Iterator[str]:
    """Keys such as ``_target_``, at any depth: a file was checked when read, the command line is checked here."""
    if isinstance(value, dict):
        for name, item in value.items():
            if RESERVED.fullmatch(str(name)):
                yield f"{prefix}{name}"
            yield from _reserved_keys(item, f"{prefix}{name}.")
    elif isinstance(value, list):
        for item in value:
            yield from _reserved_keys(item, prefix)


def _settle_pairs(tree: dict[str, Any], origins: Origins) -> Iterator[str]:
    """Of two keys that exclude each other, drops the one said earlier; said in one place, both stay and are refused.

    Yields a note when the command line drops what a file says; file over file is what recipes are made of.
    """
    for pair in _EITHER_OR:
        values = {key: _section(tree, key).get(key.rsplit(".", 1)[-1]) for key in pair}
        if None in values.values() or len({origins.source(key) for key in pair}) == 1:
            continue
        earlier, later = sorted(pair, key=origins.position)
        _section(tree, earlier)[earlier.rsplit(".", 1)[-1]] = None
        if origins.source(later) == COMMAND_LINE:
            yield f"{later}={values[later]} replaces {earlier}={as_text(values[earlier])} ({origins.locate(earlier)})"


def _section(tree: dict[str, Any], key: str) -> dict[str, Any]:
    section: Any = tree
    for name in key.split(".")[:-1]:
        section = section.get(name) if isinstance(section, dict) else None
    return section if isinstance(section, dict) else {}


def _located(fault: Fault, origins: Origins) -> Fault:
    if fault.where is not None or not fault.keys or fault.code == "recipe.missing_key":
        return fault
    return replace(fault, where=origins.locate(fault.keys[0]))
