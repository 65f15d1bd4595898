"""The words after the verb: a recipe's name, then ``group=choice`` and ``key=value``; all their faults at once.

What has ``=`` is Hydra's grammar, with three differences: text keys take their value as typed (``=``, commas and
all), foreign words are read as ours with a note, and what would change the schema or sweep (``+``, ``~``, ``a=1,2``)
is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.compose import library, references, values
from launcher.errors import Fault
from launcher.recipe import aliases
from launcher.recipe.aliases import meant_keys
from launcher.recipe.fields import annotation_at, as_text, is_section
from launcher.recipe.redact import redact_override, redact_text
from launcher.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 65536
"""Characters of one word."""
FILES = "_file_"
"""Folder of the recipe group under which a file named by its path is known to Hydra."""

_SIMPLE_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)*")


@dataclass(frozen=True, kw_only=True)
class Override:
    """One ``group=choice`` or ``key=value``, understood."""

    typed: str
    """As the user wrote it."""
    key: str
    """The canonical dotted key, or the group."""
    is_choice: bool
    """Whether it chooses a file of a group."""
    hydra: str
    """As Hydra is told."""


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """All words, understood."""

    overrides: tuple[Override, ...]
    files: dict[str, Path]
    """Recipe files named by path: config path -> file."""
    notes: tuple[str, ...]
    faults: tuple[Fault, ...]


def parse(words: Sequence[str], roots: Sequence[Path]) -> CommandLine:
    """Understands the words; nothing is read but folder listings."""
    reader = _Reader(roots=tuple(roots), groups=library.groups(roots))
    for position, word in enumerate(words):
        reader.word(word, is_first=position == 0)
    return CommandLine(
        overrides=tuple(reader.overrides), files=reader.files, notes=tuple(reader.notes), faults=tuple(reader.faults)
    )


@dataclass(kw_only=True)
class _Reader:
    roots: tuple[Path, ...]
    groups: tuple[str, ...]
    overrides: list[Override] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    said: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Canonical key -> (key as typed, whole word)."""

    def word(self, word: str, *, is_first: bool) -> None:
        key, equals, value = word.partition("=")
        if len(word) > LONGEST or "\0" in word:
            self._refuse(word[:40], f"a word of {len(word)} characters is no override")
        elif word.startswith(("+", "~")):
            what = f"{word[0]} would change which keys there are; a recipe's keys are fixed"
            self._refuse(word, what, try_=word.lstrip("+") if word[0] == "+" else f"{key[1:]}=null")
        elif not equals and is_first and word and not word.startswith("-"):
            self._choice(word, library.RECIPE_GROUP, word)
        elif not equals:
            self._no_equals(word)
        elif "@" in key:
            self._refuse(word, f"{key}: a choice stays in its own section", allowed="GROUP=NAME")
        elif key == "hydra" or key.startswith(("hydra.", "hydra/")):
            self._refuse(word, f"{key} is Hydra's own setting, no key of a recipe")
        elif key in self.groups and "." not in key:
            self._choice(word, key, value)
        elif "/" in key:
            self._slash(word, key, value)
        else:
            self._key(word, key, value)

    def _refuse(
        self, word: str, what: str, *, allowed: str | None = None, try_: str | None = None, key: str | None = None
    ) -> None:
        self.faults.append(
            Fault(
                what=what,
                keys=(key,) if key else (),
                where=f"command line: {redact_override(word)}",
                allowed=allowed,
                suggestion=try_,
                code="recipe.command_line",
            )
        )

    def _no_equals(self, word: str) -> None:
        key, colon, value = word.partition(":")
        suggestion = None if word.startswith("-") or not word else f"recipe={word}"
        if colon and annotation_at(key) is not None:  # YAML's way
            suggestion = f"{key}={value.strip()}"
        shown = redact_text(word) or "an empty word"
        self._refuse(word, f"{shown} is neither the recipe (which comes first) nor key=value", try_=suggestion)

    def _slash(self, word: str, key: str, value: str) -> None:
        dotted = key.replace("/", ".")
        alias = aliases.find_alias(dotted)
        known = alias.key if alias else dotted
        if annotation_at(known) is not None:
            self._refuse(word, f"{key} has a slash; a key has dots", try_=f"{known}={value}", key=known)
            return
        near = [*nearest(key, self.groups, most=1), *meant_keys(dotted, most=1)]
        what = f"there is no group {key}"
        self._refuse(word, what, allowed=", ".join(self.groups), try_=f"did you mean {near[0]}?" if near else None)

    def _choice(self, word: str, group: str, name: str) -> None:
        if name.endswith((".yaml", ".yml")) and group == library.RECIPE_GROUP:
            name = self._file(word, name)
        elif not _SIMPLE_NAME.fullmatch(name) or ".." in name.split("/"):
            self._refuse(
                word, f"{name!r} is not the name of a {group}", allowed="words joined by slashes, inside the folder"
            )
            return
        elif name not in (names := library.choice_names(group, self.roots)):
            self._unknown_choice(word, group, name, names)
            return
        if name:
            self._say(word, group, group, f"{group}={name}", is_choice=True)

    def _unknown_choice(self, word: str, group: str, name: str, names: tuple[str, ...]) -> None:
        near = nearest(name, names)
        shown = names if len(names) <= 40 else [*names[:40], "..."]
        self._refuse(
            word,
            f"there is no {group} {name}",
            allowed=", ".join(shown),
            try_=" or ".join(match if "=" not in word else f"{group}={match}" for match in near) or None,
        )

    def _file(self, word: str, typed: str) -> str:
        path = Path(typed).expanduser()
        if not path.is_file():
            self._refuse(word, f"there is no file {typed}", try_=f"{typed.rsplit('.', 1)[0]}, if a recipe is meant")
            return ""
        name = f"{FILES}/{re.sub(r'[^A-Za-z0-9_-]', '-', path.stem)}"
        self.files[f"{library.RECIPE_GROUP}/{name}"] = path
        return name

    def _key(self, word: str, key: str, value: str) -> None:
        alias = aliases.find_alias(key)
        canonical = alias.key if alias else key
        annotation = annotation_at(canonical)
        if annotation is None:
            near = (*nearest(key if "." not in key else "", self.groups, most=1), *meant_keys(key, most=1))
            self._refuse(
                word, f"unknown key {key}", try_=f"did you mean {near[0]}?" if near else "launcher explain", key=key
            )
        elif is_section(annotation):
            self._refuse(word, f"{key} is a section; set one of its keys", try_=f"{key}.KEY=VALUE", key=key)
        else:
            self._value(word, key, canonical, annotation, self._translated(word, alias, value))

    def _translated(self, word: str, alias: aliases.Alias | None, value: str) -> str | None:
        """The value in our words; None if it was refused."""
        if alias is None:
            return value
        try:
            translated = str(as_text(aliases.translate(alias, word, value)))
        except LookupError as reason:
            self._refuse(word, str(reason.args[0]), key=alias.key)
            return None
        self.notes.append(f"command line: {redact_override(word)} is read as {alias.key}={translated}")
        return translated

    def _value(self, word: str, key: str, canonical: str, annotation: Any, value: str | None) -> None:
        if value is None:
            return
        reasons = [*references.refusals(value), *values.depth_refusals(value)]
        for reason in reasons:
            self._refuse(word, reason, key=canonical)
        if reasons:
            return
        hydra_value = values.in_hydra_words(annotation, references.hide(value))
        for what, allowed in values.refusals(canonical, hydra_value, key, annotation):
            self._refuse(word, what, allowed=allowed, key=canonical)
            return
        # ++ sets a key whether a file has set it or not.
        self._say(word, key, canonical, f"++{canonical}={hydra_value}", is_choice=False)

    def _say(self, word: str, typed_key: str, canonical: str, hydra: str, *, is_choice: bool) -> None:
        before = self.said.get(canonical)
        if before and (is_choice or before[0] != typed_key):
            words = f"{redact_override(before[1])} {word}"
            self._refuse(words, f"{before[0]} and {typed_key} both set {canonical}; keep one", key=canonical)
        self.said[canonical] = (typed_key, word)
        self.overrides.append(Override(typed=word, key=canonical, is_choice=is_choice, hydra=hydra))
