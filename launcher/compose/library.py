"""The folders recipes are read from, and what there is to choose in them.

A team's folders (``--recipes DIR``) come first, ours last: of two files with one name, the first is read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import launcher
from launcher.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RECIPE_GROUP = "recipe"
_DESCRIPTION = re.compile(r"^description:[ \t]*(?P<quote>[\"']?)(?P<text>.*?)(?P=quote)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^#[ \t]*(?!@)(?P<text>\S.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One file of a group: a recipe, a model, a cluster."""

    name: str
    """As the command line names it: ``gpt/13b``."""
    path: Path
    shown: str
    """``recipes/recipe/gpt/13b.yaml``."""
    description: str
    """The file's ``description`` key, else its first comment; may be empty."""


@cache
def shipped_root() -> Path:
    """Our own recipes: the copy inside an installed package, or the checkout's ``recipes/`` beside it."""
    package = Path(launcher.__file__).resolve().parent
    packaged = package / "_recipes"
    return packaged if packaged.is_dir() else package.parent / "recipes"


def search_path(recipe_dirs: Sequence[Path] = ()) -> tuple[Path, ...]:
    """The folders in the order they are searched.

    Raises:
        UsageError: a folder that is not there.
    """
    for folder in recipe_dirs:
        if not Path(folder).is_dir():
            raise UsageError(f"--recipes {folder} is not a folder", code="usage.recipes")
    return (*(Path(folder).absolute() for folder in recipe_dirs), shipped_root())


def shown_path(root: Path, relative: str) -> str:
    """A file as messages name it: its root's own name, then the path below it."""
    name = "recipes" if root == shipped_root() else root.name
    return f"{name}/{relative}"


def groups(roots: Sequence[Path]) -> tuple[str, ...]:
    """The groups there are to choose from: ``cluster, data, model, ...``."""
    return tuple(sorted({folder.name for root in roots for folder in _subfolders(root)}))


def group_choices(group: str, recipe_dirs: Sequence[Path] = ()) -> tuple[Choice, ...]:
    """What can be chosen in a group, sorted by name, without composing anything."""
    found: dict[str, Choice] = {}
    for root in search_path(recipe_dirs):
        for name, path in _files(root, group):
            if name not in found:
                shown = shown_path(root, f"{group}/{name}.yaml")
                found[name] = Choice(name=name, path=path, shown=shown, description=_description(path))
    return tuple(sorted(found.values(), key=lambda choice: _natural(choice.name)))


def choice_names(group: str, roots: Sequence[Path]) -> tuple[str, ...]:
    """The names a group offers; no file is opened."""
    names = {name for root in roots for name, _ in _files(root, group)}
    return tuple(sorted(names, key=_natural))


def recipe_names(recipe_dirs: Sequence[Path] = ()) -> tuple[str, ...]:
    """The recipes there are: ``gpt/tiny``, ``llama3/8b``."""
    return choice_names(RECIPE_GROUP, search_path(recipe_dirs))


def find(roots: Sequence[Path], relative: str) -> Iterator[tuple[Path, Path]]:
    """Each root that holds the file ``relative``, with the file, first found first; nothing outside a root."""
    if _climbs(relative):
        return
    for root in roots:
        path = root / relative
        if path.is_file() and _stays_inside(path, root):
            yield root, path


def _climbs(relative: str) -> bool:
    return "\0" in relative or relative.startswith(("/", "\\")) or ".." in Path(relative).parts


def _stays_inside(path: Path, root: Path) -> bool:
    """Whether no link leads out of the root."""
    return path.resolve().is_relative_to(root.resolve())


def _subfolders(root: Path) -> Iterable[os.DirEntry[str]]:
    with os.scandir(root) as entries:
        return [entry for entry in entries if entry.is_dir() and not entry.name.startswith((".", "_"))]


def _files(root: Path, group: str) -> list[tuple[str, Path]]:
    folder = root / group
    return [
        (str(path.relative_to(folder).with_suffix("")).replace(os.sep, "/"), path)
        for path in folder.rglob("*.yaml")
        if not path.name.startswith(".") and (not path.is_symlink() or _stays_inside(path, root))
    ]


def _description(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(4096).decode(errors="replace")
    found = _DESCRIPTION.search(text) or _COMMENT.search(text)
    return found["text"].strip() if found else ""


def _natural(name: str) -> list[tuple[int, float, str]]:
    """Sorts ``gpt/125m`` before ``gpt/1.3b``: sizes by value, words by alphabet."""
    scales = {"m": 1e6, "b": 1e9, "t": 1e12}
    parts = re.findall(r"(\d+(?:\.\d+)?)([mbt]\b)?|(\D+)", name)
    return [(0, float(number) * scales.get(unit, 1), "") if number else (1, 0.0, word) for number, unit, word in parts]
