"""Reads a recipe's YAML as data, within limits, and remembers the line of every key.

Everything is checked before Hydra composes: a file is read once, event by event, with libyaml. What YAML readers
disagree about (octal, base-60, yes/no), what could run code (``_target_``, resolvers, tags) and what could grow
without bound (aliases, depth, size) is refused with file, line and column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from launcher.compose import references, yaml_scalars
from launcher.errors import Fault, RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGEST_BYTES = 1 << 20
DEEPEST = 64
MOST_NODES = 10_000
"""Nodes of one file with its aliases written out."""

RESERVED = re.compile(r"_\w+_")
"""Keys with a meaning of their own to Hydra: ``_target_``, ``_args_``, ``_partial_`` and the like."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HEADER = re.compile(r"#\s*@package\s+(\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class Document:
    """One YAML file, read."""

    shown: str
    """The file's path as messages name it: ``recipes/model/gpt/13b.yaml``."""
    content: dict[str, Any]
    """What the file says; ``${`` pieces are hidden (``references.hide``)."""
    lines: dict[tuple[str, ...], int]
    """Path of a key or list item (``defaults``, ``0``) in the file -> its line, from 1."""
    header: str | None
    """The ``# @package NAME`` at its top, when there is one: the section its content belongs to."""


def read(path: Path, shown: str) -> Document:
    """Reads one file.

    Raises:
        RecipeError: with every fault of the file, each with ``file:line:column``.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"{shown} cannot be read: {error.strerror}", where=shown, code="recipe.yaml") from error
    return parse(raw, shown)


def parse(raw: bytes, shown: str) -> Document:
    """Reads the bytes of one file; see ``read``."""
    text = _text(raw, shown)
    builder = _Builder(shown=shown)
    try:
        content = builder.document(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise RecipeError([*builder.faults, _syntax_fault(error, text, shown)]) from error
    except yaml.reader.ReaderError as error:  # libyaml gives an offset, no mark
        line = raw.count(b"\n", 0, error.position) + 1
        what = f"character #x{ord(error.character) if isinstance(error.character, str) else error.character:04x}"
        raise RecipeError(f"not YAML: {what} is not allowed", where=f"{shown}:{line}", code="recipe.yaml") from error
    if builder.faults:
        raise RecipeError(builder.faults)
    return Document(shown=shown, content=content, lines=builder.lines, header=_header(text))


def _text(raw: bytes, shown: str) -> str:
    if len(raw) > LARGEST_BYTES:
        raise RecipeError(f"{shown} is larger than {LARGEST_BYTES >> 20} MiB", where=shown, code="recipe.yaml_limit")
    if raw.startswith(b"\xef\xbb\xbf"):
        what = f"{shown} starts with a byte order mark"
        raise RecipeError(what, where=f"{shown}:1:1", allowed="UTF-8 without a mark", code="recipe.yaml")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RecipeError(f"{shown} is not UTF-8", where=f"{shown}:{line}", code="recipe.yaml") from error


def _syntax_fault(error: yaml.MarkedYAMLError, text: str, shown: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    where = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark else shown
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if re.match(r" *\t", line):
        return Fault(what="a tab indents this line", where=where, allowed="spaces", code="recipe.yaml")
    return Fault(what=f"not YAML: {_one_line(error.problem or str(error))}", where=where, code="recipe.yaml")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _header(text: str) -> str | None:
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return None
        found = _HEADER.fullmatch(line.strip())
        if found:
            return found[1]
    return None


def _line(event: Any) -> int:
    """The line an event starts on, from 1."""
    return int(event.start_mark.line) + 1


class _LimitError(Exception):
    """A limit was passed; nothing after it is read."""


@dataclass
class _Builder:
    """Makes plain data from parser events and gathers faults on the way."""

    shown: str
    faults: list[Fault] = field(default_factory=list)
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    nodes: int = 0
    anchors: dict[str, tuple[Any, int] | None] = field(default_factory=dict)

    def document(self, events: Iterator[Any]) -> dict[str, Any]:
        content: Any = None
        try:
            content = self._only_document(events)
        except _LimitError:
            return {}
        if not isinstance(content, dict) and not self.faults:
            what = "the file is empty" if content is None else "the file is not a section of keys"
            self.faults.append(
                Fault(what=what, where=f"{self.shown}:1", allowed="key: value lines, or {}", code="recipe.yaml")
            )
        return content if isinstance(content, dict) else {}

    def _only_document(self, events: Iterator[Any]) -> Any:
        content: Any = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse(event, "a second YAML document starts here", allowed="one document a file")
                    raise _LimitError
            elif isinstance(event, yaml.NodeEvent):
                content = self._node(event, events, ())
        return content

    def _refuse(self, event: Any, what: str, *, allowed: str | None = None, try_: str | None = None) -> None:
        mark = event.start_mark
        self.faults.append(
            Fault(
                what=what,
                where=f"{self.shown}:{mark.line + 1}:{mark.column + 1}",
                allowed=allowed,
                suggestion=try_,
                code="recipe.yaml",
            )
        )

    def _count(self, event: Any, nodes: int, depth: int) -> None:
        self.nodes += nodes
        if self.nodes > MOST_NODES:
            self._refuse(event, f"more than {MOST_NODES} values, aliases written out")
            raise _LimitError
        if depth > DEEPEST:
            self._refuse(event, f"nested more than {DEEPEST} levels deep")
            raise _LimitError

    def _node(self, event: Any, events: Iterator[Any], path: tuple[str, ...], depth: int = 0) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        self._count(event, 1, depth)
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._refuse(event, f"tag {tag} is not used in recipes", try_="leave the tag out, or quote the value")
        before = self.nodes
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(events, path, depth)
        else:
            value = self._sequence(events, path, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - before + 1)
        return value

    def _alias(self, event: Any, depth: int) -> Any:
        known = self.anchors.get(event.anchor)
        if known is None:
            self._refuse(event, f"*{event.anchor} refers to itself or to nothing")
            raise _LimitError
        self._count(event, known[1], depth)
        return known[0]

    def _mapping(self, events: Iterator[Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_event in events:
            if isinstance(key_event, yaml.MappingEndEvent):
                break
            name = self._key(key_event, path, mapping)
            mapping[name] = self._node(next(events), events, (*path, name), depth + 1)
        return mapping

    def _key(self, event: Any, path: tuple[str, ...], mapping: dict[str, Any]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(event, "a key is not a word")
            raise _LimitError
        name = str(event.value)
        self._count(event, 1, 0)
        if name == "<<" and event.implicit[0]:
            self._refuse(event, "merge keys (<<) are not used in recipes", try_="list the other file under defaults")
        elif RESERVED.fullmatch(name):
            self._refuse(event, f"{name} would run code; recipes are data")
        elif "${" in name:
            self._refuse(event, f"key {name} holds a reference")
        elif name in mapping:
            self._refuse(event, f"key {name} is given twice, first on line {self.lines[(*path, name)]}")
        self.lines.setdefault((*path, name), _line(event))
        return name

    def _sequence(self, events: Iterator[Any], path: tuple[str, ...], depth: int) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            here = (*path, str(len(items)))
            self.lines[here] = _line(event)
            items.append(self._node(event, events, here, depth + 1))
        return items

    def _scalar(self, event: Any) -> Any:
        text = str(event.value)
        for reason in references.refusals(text):
            self._refuse(event, reason, allowed="${section.key}, or \\${ for a plain ${")
        if not event.implicit[0]:  # quoted
            return references.hide(text)
        trap = yaml_scalars.trap(text)
        if trap:
            self._refuse(
                event, trap, try_=f'"{text}" in quotes for the word; true, false or a decimal number otherwise'
            )
            return text
        return yaml_scalars.meaning(text)
