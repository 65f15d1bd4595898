"""A plan as JSON and back, with the field names of ``plan.py``; and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from launcher.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping


def encode(plan: Plan) -> dict[str, Any]:
    """The plan as plain JSON values."""
    encoded: dict[str, Any] = _encode(plan)
    return encoded


def decode(mapping: Mapping[str, Any]) -> Plan:
    """The plan that ``encode`` wrote."""
    plan: Plan = _decode(Plan, mapping)
    return plan


def plan_digest(plan: Plan) -> str:
    """sha256 of the plan's canonical JSON without the digest itself.

    Numbers count to nine significant figures, so that libraries that round the last bit of a logarithm differently
    (a laptop's and the job's) still agree.
    """
    encoded = encode(plan)
    del encoded["plan_digest"]
    text = json.dumps(_rounded(encoded), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _encode(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    kind: type = type(value)
    names = _names(kind)
    return {name: _encode(getattr(value, name)) for name in names} if names else value


@cache
def _names(kind: type) -> tuple[str, ...]:
    """A dataclass's fields; none for plain values."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _decode(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{field.name: _decode(hints[field.name], value[field.name]) for field in fields(kind)})
    if get_origin(kind) is tuple:
        return tuple(_decode(get_args(kind)[0], item) for item in value)
    if get_origin(kind) is UnionType and value is not None:
        return _decode(next(arm for arm in get_args(kind) if arm is not type(None)), value)
    return float(value) if kind is float else value
