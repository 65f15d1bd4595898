"""Every key of a recipe as a person looks it up: type, allowed values, default, tag, limits, meaning."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, get_args, get_origin

from launcher.recipe import fields as schema_fields
from launcher.recipe import schema


@dataclass(frozen=True, kw_only=True)
class Key:
    """What ``launcher explain KEY`` shows."""

    path: str
    """Dotted: ``parallelism.zero_stage``."""
    type: str
    """``int``, ``float``, ``str``, ``bool``, ``choice``, ``list``, ``mapping``."""
    allowed: str
    """What is accepted, in words, limits included."""
    choices: tuple[str, ...]
    """The values of a choice; empty for other types."""
    default: Any
    """Plain data; None means derived or not asked."""
    is_required: bool
    """Whether a recipe must give it."""
    is_optional: bool
    """Whether null is accepted: the value is then derived, or the thing is not asked for."""
    tag: schema.Tag
    """What changes with it: convergence, mapping, runtime or metadata."""
    meaning: str
    """The schema's own docstring of the key."""


@cache
def all_keys() -> tuple[Key, ...]:
    """Every key, in schema order."""
    return tuple(_section_keys(schema.Recipe, ""))


def find_key(path: str) -> Key | None:
    """The key at a dotted path, or None."""
    return next((key for key in all_keys() if key.path == path), None)


def tag_of(path: str) -> schema.Tag:
    """The tag of a key; a key under ``environment.variables`` has the tag of the mapping it stands in."""
    for key in all_keys():
        if path == key.path or (key.type == "mapping" and path.startswith(f"{key.path}.")):
            return key.tag
    raise KeyError(path)


def section_meaning(path: str) -> str | None:
    """The docstring of a section (``parallelism``, ``training.optimizer``), or None."""
    section: Any = schema.Recipe
    for name in path.split("."):
        section = schema_fields.field_types(section).get(name)
        if not schema_fields.is_section(section):
            return None
    return inspect.getdoc(section)


def _section_keys(section: type, prefix: str) -> list[Key]:
    keys: list[Key] = []
    meanings = _meanings()[section.__name__]
    for field in fields(section):
        annotation, path = schema_fields.field_types(section)[field.name], prefix + field.name
        if schema_fields.is_section(annotation):
            keys += _section_keys(annotation, f"{path}.")
        else:
            keys.append(_key(path, annotation, field, meanings.get(field.name, "")))
    return keys


def _key(path: str, annotation: Any, field: Any, meaning: str) -> Key:
    inner, optional = schema_fields.unwrap_optional(annotation)
    limits = schema_fields.limits_text(field.metadata)
    allowed = schema_fields.allowed_text(annotation)
    return Key(
        path=path,
        type=_type_name(inner),
        allowed=f"{allowed} ({limits})" if limits else allowed,
        choices=tuple(str(value) for value in get_args(inner)) if get_origin(inner) is Literal else (),
        default=None if schema_fields.is_missing(field) else schema_fields.default_of(field),
        is_required=schema_fields.is_missing(field),
        is_optional=optional,
        tag=field.metadata["tag"],
        meaning=meaning,
    )


def _type_name(inner: Any) -> str:
    names: dict[Any, str] = {Literal: "choice", tuple: "list", dict: "mapping"}
    return names.get(get_origin(inner)) or str(inner.__name__)


@cache
def _meanings() -> dict[str, dict[str, str]]:
    """Section -> field -> the bare string under the field, which Python does not keep at run time."""
    tree = ast.parse(inspect.getsource(schema))
    return {node.name: _field_docstrings(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _field_docstrings(section: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, after in zip(section.body, section.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            found[field.target.id] = inspect.cleandoc(str(ast.literal_eval(after.value)))
    return found
