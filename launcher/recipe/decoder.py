"""Walks the schema and plain data side by side, makes the typed values, and gathers every fault on the way."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from launcher.errors import Fault
from launcher.recipe.aliases import meant_keys
from launcher.recipe.fields import (
    allowed_text,
    as_text,
    field_types,
    is_mapping,
    is_missing,
    is_section,
    limits_text,
    unwrap_optional,
)
from launcher.recipe.redact import REDACTED, redact
from launcher.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import Field

Section = TypeVar("Section")

DEEPEST = 64
"""Levels a free-form value (``parallelism.deepspeed``) may nest."""
WIDEST = 2**63
"""Whole numbers stay below this in magnitude: what JSON readers and MLflow hold exactly as integers."""
_NOTHING: Any = object()
"""Stands for a value that is absent or was refused."""


class Decoder:
    """One pass over one recipe's data; ``faults`` is empty after it if and only if the data is a recipe."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def _refuse(self, key: str, what: str, *, allowed: str | None = None, suggestion: str | None = None) -> Any:
        self.faults.append(
            Fault(what=what, keys=(key,) if key else (), allowed=allowed, suggestion=suggestion, code="recipe.value")
        )
        return _NOTHING

    def section(self, cls: type[Section], data: Any, prefix: str = "") -> Section | None:
        """The section ``cls`` that ``data`` says; None if it has a fault. ``prefix`` is its dotted path and a dot."""
        before = len(self.faults)
        if not _is_mapping_value(data):
            where = prefix.rstrip(".") or "a recipe"
            hint = f"leave {where} out" if data is None else None
            self._refuse(prefix.rstrip("."), f"{where} must be a section of keys, not {_show(data)}", suggestion=hint)
            return None
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        for name in data:
            if name not in known:
                self._unknown(str(name), prefix, known)
        values = {name: self._field(cls, field, data, prefix) for name, field in known.items()}
        given = {name: value for name, value in values.items() if value is not _NOTHING}
        return cls(**given) if len(self.faults) == before else None

    def _unknown(self, name: str, prefix: str, known: Mapping[str, Any]) -> None:
        key = prefix + _shown_name(name)
        near = [prefix + match for match in nearest(name, known, most=1)] or list(meant_keys(key, most=1))
        self.faults.append(
            Fault(
                what=f"unknown key {key}",
                keys=(key,),
                suggestion=f"did you mean {near[0]}?" if near else None,
                code="recipe.unknown_key",
            )
        )

    def _field(self, cls: type, field: Field[Any], data: Mapping[str, Any], prefix: str) -> Any:
        key, annotation = prefix + field.name, field_types(cls)[field.name]
        value = data.get(field.name, _NOTHING)
        if value == "???":
            value = _NOTHING
        if is_section(annotation):
            return self._subsection(annotation, field, value, key)
        if value is _NOTHING:
            return self._absent(field, key)
        return self._limited(field, self._value(annotation, value, key), key)

    def _subsection(self, annotation: type, field: Field[Any], value: Any, key: str) -> Any:
        if value is _NOTHING and not is_missing(field):
            return _NOTHING
        section = self.section(annotation, {} if value is _NOTHING else value, f"{key}.")
        return _NOTHING if section is None else section

    def _absent(self, field: Field[Any], key: str) -> Any:
        if is_missing(field):
            self.faults.append(Fault(what=f"{key} is missing", keys=(key,), code="recipe.missing_key"))
        return _NOTHING

    def _limited(self, field: Field[Any], value: Any, key: str) -> Any:
        if value is _NOTHING or value is None or _within(value, field.metadata):
            return value
        return self._refuse(key, _says(key, value), allowed=limits_text(field.metadata))

    def _value(self, annotation: Any, value: Any, key: str) -> Any:
        inner, optional = unwrap_optional(annotation)
        if value is None and optional:
            return None
        if _is_redacted(value):
            return self._redacted(key)
        if get_origin(inner) is Literal:
            return self._literal(annotation, inner, value, key)
        if get_origin(inner) is tuple:
            return self._tuple(annotation, inner, value, key)
        if is_mapping(inner):
            return self._mapping(inner, value, key)
        decoded = _SCALARS[inner](value)
        if decoded is not _NOTHING:
            return decoded
        return self._refuse(
            key, _says(key, value), allowed=allowed_text(annotation), suggestion=_quote_hint(inner, value)
        )

    def _redacted(self, key: str) -> Any:
        what = f"{key} is {REDACTED}: the secret was taken out when this recipe was shown"
        return self._refuse(key, what, suggestion="put the secret back, or leave the key out")

    def _literal(self, annotation: Any, inner: Any, value: Any, key: str) -> Any:
        choices = get_args(inner)
        for choice in choices:
            if type(choice) is type(value) and choice == value:
                return choice
        near = nearest(str(value), [str(choice) for choice in choices], most=1)
        return self._refuse(
            key,
            _says(key, value),
            allowed=allowed_text(annotation),
            suggestion=f"{key}={near[0]}" if near else None,
        )

    def _tuple(self, annotation: Any, inner: Any, value: Any, key: str) -> Any:
        element = get_args(inner)[0]
        if not isinstance(value, list | tuple):
            hint = f"{key}=[{value}]" if isinstance(value, str) else None
            return self._refuse(key, _says(key, value), allowed=allowed_text(annotation), suggestion=hint)
        items = [self._element(element, item, f"{key}[{index}]") for index, item in enumerate(value)]
        return _NOTHING if any(item is _NOTHING for item in items) else tuple(items)

    def _element(self, annotation: Any, item: Any, key: str) -> Any:
        return self._value(annotation, as_text(item) if annotation is str else item, key)

    def _mapping(self, inner: Any, value: Any, key: str) -> Any:
        if not _is_mapping_value(value):
            return self._refuse(key, _says(key, value), allowed="a mapping")
        element = get_args(inner)[1]
        items = {name: self._item(element, item, f"{key}.{_shown_name(name)}") for name, item in value.items()}
        if any(item is _NOTHING for item in items.values()):
            return _NOTHING
        return {name: item for name, item in items.items() if item is not None}

    def _item(self, annotation: Any, item: Any, key: str) -> Any:
        if annotation is Any:
            return self._free(item, key, DEEPEST)
        if item is None:
            return None  # null takes a variable or tag out again
        return self._element(annotation, item, key)

    def _free(self, value: Any, key: str, deepest: int) -> Any:
        if deepest == 0:
            return self._refuse(key, f"{key} nests more than {DEEPEST} levels deep")
        if _is_redacted(value):
            return self._redacted(key)
        if _is_mapping_value(value):
            free = {name: self._free(item, f"{key}.{_shown_name(name)}", deepest - 1) for name, item in value.items()}
            return _NOTHING if any(item is _NOTHING for item in free.values()) else free
        if isinstance(value, list | tuple):
            items = [self._free(item, f"{key}[{index}]", deepest - 1) for index, item in enumerate(value)]
            return _NOTHING if any(item is _NOTHING for item in items) else items
        if value is None or isinstance(value, bool | str) or _number(value) is not _NOTHING:
            return value
        return self._refuse(key, _says(key, value), allowed="plain data with finite numbers")


def _integer(value: Any) -> Any:
    if isinstance(value, bool):
        return _NOTHING
    if isinstance(value, float) and value.is_integer():  # 1e12 tokens
        value = int(value)
    return value if isinstance(value, int) and abs(value) < WIDEST else _NOTHING


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NOTHING
    is_sane = math.isfinite(value) if isinstance(value, float) else abs(value) < WIDEST
    return float(value) if is_sane else _NOTHING


def _text(value: Any) -> Any:
    return value if isinstance(value, str) and "\0" not in value else _NOTHING


def _truth(value: Any) -> Any:
    return value if isinstance(value, bool) else _NOTHING


_SCALARS: dict[Any, Callable[[Any], Any]] = {int: _integer, float: _number, str: _text, bool: _truth}


def _within(value: Any, metadata: Mapping[str, Any]) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return True
    at_least, above = metadata.get("at_least", -math.inf), metadata.get("above", -math.inf)
    return bool(at_least <= value <= metadata.get("at_most", math.inf) and value > above)


def _is_redacted(value: Any) -> bool:
    return isinstance(value, str) and REDACTED in value


def _is_mapping_value(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def _quote_hint(inner: Any, value: Any) -> str | None:
    """What to try when text and number were confused."""
    if inner is str and isinstance(value, bool | int | float):
        return f'write it in quotes: "{as_text(value)}"'
    if inner in (int, float) and isinstance(value, str) and value.replace(".", "", 1).isdigit():
        return f"write it without quotes: {value}"
    return None


def _says(key: str, value: Any) -> str:
    return f"{key} is {_show(redact(value, name=key.rsplit('.', 1)[-1]))}"


def _shown_name(name: Any) -> str:
    """A key as typed, unless it would break a line."""
    text = str(name)
    return text if text.isprintable() else repr(text)


def _show(value: Any) -> str:
    """A value as the user would write it, cut to a line."""
    if value is None:
        return "null"
    if isinstance(value, int) and abs(value) >= WIDEST:
        return "a number too large"
    text = repr(value) if isinstance(value, str) else str(as_text(value))
    return text if len(text) <= 80 else text[:77] + "..."
