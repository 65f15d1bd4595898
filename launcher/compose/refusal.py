"""Hydra's refusals in our words: what the command line could cause is refused before; this is about files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hydra.errors import MissingConfigException

from launcher.compose import library
from launcher.errors import RecipeError
from launcher.registry import nearest

if TYPE_CHECKING:
    from hydra.errors import HydraException

    from launcher.compose.reading import Reading

_NO_SUCH_GROUP = re.compile(r"In '[^']*': Could not override '(?P<group>[^'@]+)(?:@[^']*)?'")
_TWICE = re.compile(r"(?P<group>[\w/.@-]+) appears more than once in the final defaults list")


def retold(error: HydraException, reading: Reading) -> RecipeError:
    """The fault a file's defaults list caused, with its place and the nearest choice."""
    text = " ".join(str(error).split())
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_choice(str(error.missing_cfg_file).removesuffix(".yaml"), reading)
    group = _NO_SUCH_GROUP.search(text)
    if group:
        return _missing_group(group["group"].lstrip("/"), reading)
    twice = _TWICE.search(text)
    if twice:
        return RecipeError(f"{twice['group']} is chosen twice by the files", code="recipe.chosen_twice")
    return RecipeError(text, code="recipe.compose")


def _missing_choice(config_path: str, reading: Reading) -> RecipeError:
    group, _, name = config_path.partition("/")
    names = library.choice_names(group, reading.roots)
    if not names:
        return _missing_group(group, reading)
    near = [known for known in names if known.endswith(f"/{name}")] or nearest(name, names, most=1)
    return RecipeError(
        f"there is no {group} {name}",
        where=_entry_place(reading, group, name),
        allowed=", ".join(names),
        suggestion=f"did you mean {near[0]}?" if near else None,
        code="recipe.unknown_choice",
    )


def _missing_group(group: str, reading: Reading) -> RecipeError:
    groups = library.groups(reading.roots)
    near = nearest(group, groups, most=1)
    return RecipeError(
        f"there is no group {group}",
        where=_entry_place(reading, group, None),
        allowed=", ".join(groups),
        suggestion=f"did you mean {near[0]}?" if near else None,
        code="recipe.unknown_group",
    )


def _entry_place(reading: Reading, group: str, name: str | None) -> str | None:
    """The line of the defaults entry that chooses ``name`` in ``group``."""
    for document in reading.documents.values():
        for index, entry in enumerate(document.content.get("defaults") or []):
            if _chooses(entry, group, name):
                return f"{document.shown}:{document.lines['defaults', str(index)]}"
    return None


def _chooses(entry: Any, group: str, name: str | None) -> bool:
    if isinstance(entry, str):
        return name is not None and entry.lstrip("/") in (name, f"{group}/{name}")
    ((written, chosen),) = entry.items()
    said = written.removeprefix("override ").removeprefix("optional ").lstrip("/").split("@")[0]
    return said == group and name in (None, chosen)
