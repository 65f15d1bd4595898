"""What differs between two recipes, by what the difference changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.recipe import codec
from launcher.recipe.keys import all_keys, tag_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.recipe.schema import Recipe, Tag

TAGS: tuple[Tag, ...] = ("convergence", "mapping", "runtime", "metadata")
"""Weightiest first: what is learnt, where and how fast, how it is watched, nothing."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One key that differs."""

    key: str
    tag: Tag
    left: Any
    """Plain data; None also where a key of the user's own is absent."""
    right: Any


def changes(left: Recipe, right: Recipe) -> tuple[Change, ...]:
    """The keys whose values differ, weightiest tag first, then in schema order."""
    before, after = dict(_values(codec.encode(left))), dict(_values(codec.encode(right)))
    found = [
        Change(key=key, tag=tag_of(key), left=before.get(key), right=after.get(key))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return tuple(sorted(found, key=lambda change: TAGS.index(change.tag)))


def by_tag(found: tuple[Change, ...]) -> dict[Tag, tuple[Change, ...]]:
    """The changes grouped by tag; tags without a change are left out."""
    groups = {tag: tuple(change for change in found if change.tag == tag) for tag in TAGS}
    return {tag: group for tag, group in groups.items() if group}


def _values(data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key with its value; the user's own keys (``environment.variables.X``) one by one."""
    for key in all_keys():
        value: Any = data
        for name in key.path.split("."):
            value = value[name]
        if key.type == "mapping":
            yield from _below(key.path, value)
        else:
            yield key.path, value


def _below(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _below(f"{path}.{name}", item)
    else:
        yield path, value
