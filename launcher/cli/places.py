"""Where a key's value was set, and how the value reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from launcher.recipe.redact import redact, redact_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.compose.composer import Composed
    from launcher.errors import Fault
    from launcher.recipe.schema import Recipe

COMMAND_LINE = "command line"
"""How an origin begins that is an override as typed."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A key, its value as one would type it, and the file and line (or the override) that set it."""

    key: str
    value: str | None
    """None when the key has no value: it does not exist, or the recipe could not be composed."""
    origin: str

    @property
    def words(self) -> tuple[str, ...]:
        """``training.micro_batch_size = 8`` and its origin; an override says its key itself."""
        if not self.key or (self.value is None and self.origin.startswith(COMMAND_LINE)):
            return (self.origin,)
        return (self.key if self.value is None else f"{self.key} = {self.value}", self.origin)


def fault_places(fault: Fault, composed: Composed | None) -> tuple[Place, ...]:
    """Where every key of ``fault`` was set; what the raiser knew goes before what the recipe knows."""
    known = key_places(fault.keys, composed)
    if fault.where is None:
        return known
    first = fault.keys[0] if fault.keys else ""
    return (Place(key=first, value=_value_text(composed, first), origin=redact_text(fault.where)), *known[1:])


def key_places(keys: Iterable[str], composed: Composed | None) -> tuple[Place, ...]:
    """Where ``keys`` were set; empty when there is no recipe to look them up in."""
    if composed is None:
        return ()
    return tuple(Place(key=key, value=_value_text(composed, key), origin=_origin(composed, key)) for key in keys)


def value_at(recipe: Recipe, key: str) -> Any:
    """The value of the dotted ``key``.

    Raises:
        LookupError: the recipe has no such key.
    """
    node: Any = recipe
    for part in key.split("."):
        if is_dataclass(node) and part in {field.name for field in fields(node)}:
            node = getattr(node, part)
        elif isinstance(node, dict) and part in node:
            node = node[part]
        else:
            raise LookupError(key)
    return node


def format_value(value: Any) -> str:
    """A value as one would type it in an override: ``null``, ``true``, ``[a, b]``, ``3e-4``."""
    if isinstance(value, str):
        return value or "''"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_value, value)) + "]"
    return json.dumps(value)


def _value_text(composed: Composed | None, key: str) -> str | None:
    if composed is None:
        return None
    try:
        value = redact(value_at(composed.recipe, key), name=key.rsplit(".", 1)[-1])
    except LookupError:
        return None
    return format_value(value)


def _origin(composed: Composed, key: str) -> str:
    origin: str = composed.origins.locate(key) or "default"
    return COMMAND_LINE if origin.startswith(f"{COMMAND_LINE}: {key}=") else redact_text(origin)
