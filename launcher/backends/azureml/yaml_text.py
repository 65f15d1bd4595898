"""Plain values as YAML text: block style, keys in the order given, text quoted whenever YAML could read it otherwise.

The subset is small enough to be sure of (mappings, lists, text, whole numbers, booleans), so no YAML package is needed
to print a job.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Value: TypeAlias = "str | int | Mapping[str, Value] | list[Value] | tuple[Value, ...]"
"""What a job document is made of. A bool is an int."""

_PLAIN = re.compile(r"(?:\./)?[A-Za-z_$/][\w./@ =${}+,-]*(?::[\w./@=${}+,-]+)*")
_WORDS_YAML_READS_OTHERWISE = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "nan"})


def to_yaml(document: Mapping[str, Value]) -> str:
    """``document`` as YAML text that ends in a newline."""
    return "\n".join(_mapping(document) if document else ("{}",)) + "\n"


def _mapping(values: Mapping[str, Value]) -> Iterator[str]:
    for name, value in values.items():
        yield from _entry(f"{_scalar(name)}:", value)


def _entry(head: str, value: Value) -> Iterator[str]:
    """``head`` and ``value``: on one line when it is a scalar, indented below otherwise."""
    if isinstance(value, str | int):
        yield f"{head} {_scalar(value)}"
    elif not value:
        yield f"{head} {'[]' if isinstance(value, list | tuple) else '{}'}"
    else:
        yield head
        yield from (f"  {line}" for line in _block(value))


def _block(value: Mapping[str, Value] | list[Value] | tuple[Value, ...]) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _entry("-", item)
    else:
        yield from _mapping(value)


def _scalar(value: str | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS_YAML_READS_OTHERWISE and value == value.strip()
    return value if is_plain else json.dumps(value, ensure_ascii=False)
