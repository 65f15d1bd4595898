"""The schema read as data: which keys there are, of which types, with which defaults and limits."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from launcher.recipe.schema import Recipe
from launcher.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Any: "anything"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts", bool: "true or false"}


def template() -> dict[str, Any]:
    """Every key with its default as plain data; ``???`` (Hydra's word for missing) where a key must be given."""
    return _section_template(Recipe)


def nearest_keys(key: str, *, most: int = 3) -> tuple[str, ...]:
    """Legal dotted keys that look like ``key``: the same last word in another section first."""
    leaf = key.rsplit(".", 1)[-1].lower()
    by_leaf = {known.rsplit(".", 1)[-1]: known for known in reversed(every_key())}
    found = [
        *(known for known in every_key() if known.rsplit(".", 1)[-1] == leaf),
        *nearest(key, every_key(), most=most),
        *(by_leaf[match] for match in nearest(leaf, by_leaf, most=most)),
    ]
    return tuple(dict.fromkeys(found))[:most]


@cache
def every_key() -> tuple[str, ...]:
    """Every dotted key that holds a value, in schema order."""
    return tuple(_keys_of(Recipe, ""))


def _keys_of(cls: type, prefix: str) -> list[str]:
    keys: list[str] = []
    for field in fields(cls):
        annotation = field_types(cls)[field.name]
        if is_section(annotation):
            keys += _keys_of(annotation, f"{prefix}{field.name}.")
        else:
            keys.append(prefix + field.name)
    return keys


@cache
def field_types(section: type) -> dict[str, Any]:
    """The types of a section's fields, resolved."""
    return get_type_hints(section)


def unwrap_optional(annotation: Any) -> tuple[Any, bool]:
    """A field's type without ``None``, and whether ``None`` was in it."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [argument for argument in get_args(annotation) if argument is not type(None)]
        return inner[0], len(inner) < len(get_args(annotation))
    return annotation, False


def is_section(annotation: Any) -> bool:
    """Whether a field's type is a section of the recipe, not a value."""
    return isinstance(annotation, type) and is_dataclass(annotation)


def is_mapping(annotation: Any) -> bool:
    """Whether a field holds keys of the user's own (``environment.variables``)."""
    return get_origin(annotation) is dict


def allowed_text(annotation: Any) -> str:
    """What a key of this type accepts, as a person reads it."""
    inner, optional = unwrap_optional(annotation)
    if get_origin(inner) is Literal:
        words = ", ".join(str(value) for value in get_args(inner))
    elif get_origin(inner) is tuple:
        words = f"a list of {_PLURALS.get(element := get_args(inner)[0]) or allowed_text(element)}"
    elif is_mapping(inner):
        words = "a mapping"
    else:
        words = _WORDS[inner]
    return f"{words}, or null" if optional else words


def limits_text(metadata: Mapping[str, Any]) -> str:
    """The numeric limits of a key: ``at least 1, at most 9``; empty without limits."""
    words = {"at_least": "at least", "above": "above", "at_most": "at most"}
    return ", ".join(f"{word} {number_text(metadata[name])}" for name, word in words.items() if name in metadata)


def is_missing(field: Field[Any]) -> bool:
    """Whether a field has no default, so that a recipe must give it."""
    return field.default is MISSING and field.default_factory is MISSING


def default_of(field: Field[Any]) -> Any:
    """A field's default as plain data; ``???`` where it must be given."""
    if is_missing(field):
        return "???"
    return plain(field.default_factory() if field.default_factory is not MISSING else field.default)


def as_text(value: Any) -> Any:
    """Numbers and truth values as a shell writes them (``8``, ``0.0001``, ``true``); anything else unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    return value


def number_text(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return repr(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else repr(value)


def plain(value: Any) -> Any:
    """Dataclasses as mappings and tuples as lists, at any depth: what JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _section_template(cls: type) -> dict[str, Any]:
    annotations = field_types(cls)
    return {
        field.name: _section_template(annotations[field.name])
        if is_section(annotations[field.name])
        else default_of(field)
        for field in fields(cls)
    }


def annotation_at(path: str) -> Any | None:
    """The type a dotted path holds: a section's class, a key's type, or a mapping's element type; None if illegal."""
    annotation: Any = Recipe
    for name in path.split("."):
        inner, _ = unwrap_optional(annotation)
        if is_section(inner):
            annotation = field_types(inner).get(name)
        elif is_mapping(inner) and name:
            annotation = get_args(inner)[1]
        elif inner is not Any:
            return None
        if annotation is None:
            return None
    return annotation
