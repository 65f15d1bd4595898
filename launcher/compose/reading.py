"""What one composition reads: files found along the search path, each read once, in our own words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from launcher.compose import library, yaml_guard
from launcher.errors import Fault, RecipeError
from launcher.recipe import aliases

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from launcher.compose.yaml_guard import Document

CONFIG = "config"
"""The primary file: the default choices, and the order in which the groups are merged."""
WHOLE = "_global_"
"""Hydra's name for the package that is the whole recipe."""
_CHOICE = re.compile(r"(?:override |optional )?/?[\w.-]+(?:/[\w.-]+)*(?:@[\w.]+)?")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Finds, reads and remembers files by Hydra's config path (``model/gpt/13b``)."""

    roots: tuple[Path, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    """Recipe files named by their path on the command line: config path -> file."""
    documents: dict[str, Document] = field(default_factory=dict)
    """What was read so far, with foreign words renamed."""
    notes: list[str] = field(default_factory=list)
    """What the user should know: files that stand before ours, foreign words read as ours."""

    def has(self, config_path: str) -> bool:
        """Whether there is such a file."""
        return config_path in self.files or any(library.find(self.roots, f"{config_path}.yaml"))

    def document(self, config_path: str) -> Document:
        """The file at a config path, read once.

        Raises:
            RecipeError: the file is not a recipe's YAML; every fault of the file.
        """
        if config_path not in self.documents:
            self.documents[config_path] = self._read(config_path)
        return self.documents[config_path]

    def _read(self, config_path: str) -> Document:
        if config_path in self.files:
            path = self.files[config_path]
            document = yaml_guard.read(path, str(path))
        else:
            document = self._find_and_read(f"{config_path}.yaml")
        faults = [*_hydra_faults(document), *_defaults_faults(document)]
        renamed = self._in_our_words(document, package_of(document, config_path), faults)
        if faults:
            raise RecipeError(faults)
        return renamed

    def _find_and_read(self, relative: str) -> Document:
        (root, path), *hidden = library.find(self.roots, relative)
        shown = library.shown_path(root, relative)
        for other, _ in hidden:
            self.notes.append(f"{path} stands before {library.shown_path(other, relative)}")
        return yaml_guard.read(path, shown)

    def _in_our_words(self, document: Document, package: str, faults: list[Fault]) -> Document:
        defaults = document.content.get("defaults")
        said = {name: value for name, value in document.content.items() if name != "defaults"}
        content, renamed, alias_faults = aliases.canonicalize(said, "" if package == WHOLE else package)
        lines = dict(document.lines)
        prefix = "" if package == WHOLE else f"{package}."
        for name in renamed:
            where = f"{document.shown}:{document.lines[name.path]}"
            self.notes.append(f"{where}: {name.written} is read as {name.key}")
            lines[tuple(name.key.removeprefix(prefix).split("."))] = document.lines[name.path]
        faults += [replace(fault, where=_where(document, fault, prefix)) for fault in alias_faults]
        with_defaults = content if defaults is None else {"defaults": defaults, **content}
        return replace(document, content=with_defaults, lines=lines)


def _where(document: Document, fault: Fault, prefix: str) -> str:
    lines = [document.lines.get(tuple(key.removeprefix(prefix).split("."))) for key in fault.keys]
    return ", ".join(f"{document.shown}:{line}" for line in lines if line is not None)


def package_of(document: Document, config_path: str) -> str:
    """The section a file's content belongs to: its header's, else its group's; a recipe's is the whole."""
    group, _, rest = config_path.partition("/")
    if document.header is not None:
        return document.header
    return group if rest and group != library.RECIPE_GROUP else WHOLE


def _hydra_faults(document: Document) -> list[Fault]:
    if "hydra" not in document.content:
        return []
    where = f"{document.shown}:{document.lines[('hydra',)]}"
    return [Fault(what="hydra's own settings are no part of a recipe", where=where, code="recipe.hydra")]


def _defaults_faults(document: Document) -> list[Fault]:
    """Entries of a defaults list that are no plain choice of a group."""
    if "defaults" not in document.content:
        return []
    defaults = document.content["defaults"]
    if not isinstance(defaults, list):
        return [_defaults_fault(document, document.lines["defaults",], "defaults is not a list")]
    return [
        _defaults_fault(
            document, document.lines["defaults", str(index)], f"{_entry_text(entry)} is not a choice of a group"
        )
        for index, entry in enumerate(defaults)
        if not _is_choice(entry)
    ]


def _defaults_fault(document: Document, line: int, what: str) -> Fault:
    return Fault(
        what=what,
        where=f"{document.shown}:{line}",
        allowed="a list of: GROUP: NAME, override /GROUP: NAME, or _self_",
        code="recipe.defaults",
    )


def _entry_text(entry: Any) -> str:
    """An entry of a defaults list as it was written."""
    return ", ".join(f"{key}: {value}" for key, value in entry.items()) if isinstance(entry, dict) else str(entry)


def _is_choice(entry: Any) -> bool:
    if isinstance(entry, dict) and len(entry) == 1:
        (group, name), *_ = entry.items()
        return _is_plain(group) and (name is None or (isinstance(name, str) and _is_plain(name)))
    return isinstance(entry, str) and _is_plain(entry)


def _is_plain(word: str) -> bool:
    climbs = ".." in word.split("/") or "hydra" in word.replace("override ", "").lstrip("/").split("/")[:1]
    return bool(_CHOICE.fullmatch(word)) and not climbs
