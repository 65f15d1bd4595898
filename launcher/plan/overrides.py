"""Overrides as the planner writes them (``training.micro_batch_size=4``), applied to a recipe without Hydra."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from launcher.recipe.fields import field_types, is_section
from launcher.recipe.schema import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


def apply_overrides(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """``recipe`` with each ``key=value`` set.

    Keys must exist, but those inside mappings; values are numbers, words, true, false or null.
    """
    for override in overrides:
        path, _, text = override.partition("=")
        recipe = _set(recipe, path.split("."), _value(text))
    return recipe


def changes_convergence(overrides: Iterable[str]) -> bool:
    """Whether any of ``overrides`` changes what is learnt."""
    return any(_tag(override.partition("=")[0]) == "convergence" for override in overrides)


def _set(node: Any, path: list[str], value: Any) -> Any:
    if isinstance(node, dict):
        others = {name: kept for name, kept in node.items() if name != path[0]}
        return others if value is None else {**others, path[0]: value}
    if len(path) == 1:
        return replace(node, **{path[0]: value})
    return replace(node, **{path[0]: _set(getattr(node, path[0]), path[1:], value)})


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@cache
def _tag(path: str) -> str:
    """The tag of a dotted key."""
    owner: Any = Recipe
    for name in path.split("."):
        found = next(field for field in fields(owner) if field.name == name)
        owner = field_types(owner)[name]
        if not is_section(owner):
            break  # what follows is a name of the user's own, inside a mapping
    return str(found.metadata["tag"])
