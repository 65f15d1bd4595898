"""The value of one ``key=value`` word, put so that Hydra reads what the user meant."""

from __future__ import annotations

import re
from typing import Any, get_args, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from launcher.recipe.fields import unwrap_optional

DEEPEST = 64
"""Brackets that may be open at once in a value."""
_SWEEP_ADVICE = "one value here; launcher plan and launcher submit take a sweep"


def in_hydra_words(annotation: Any, value: str) -> str:
    """A value in Hydra's grammar: text as typed, everything else as Hydra reads it."""
    inner, optional = unwrap_optional(annotation)
    if inner is str and not (optional and value == "null") and not _is_quoted(value):
        return _quoted(value)
    if get_origin(inner) is tuple and get_args(inner)[0] is str:
        return _hydra_list(value)
    return value


def _hydra_list(value: str) -> str:
    """``[a=1,b c]``: a flat list of texts, each as typed; with quotes or inner brackets, Hydra reads it."""
    body = value.strip()[1:-1]
    if not re.fullmatch(r"\s*\[[^\[\]{}'\"]*\]\s*", value) or not body.strip():
        return value
    return f"[{','.join(_quoted(item.strip()) for item in body.split(','))}]"


def _is_quoted(value: str) -> bool:
    return len(value) >= 2 and value[0] in "'\"" and value[-1] == value[0]


def _quoted(text: str) -> str:
    """``text`` in Hydra's single quotes: a backslash counts only before a quote, where it is doubled."""
    escaped = re.sub(r"(\\*)'", lambda match: f"{match[1] * 2}\\'", text)
    trailing = escaped[len(escaped.rstrip("\\")) :]
    return f"'{escaped}{trailing}'"


def depth_refusals(value: str) -> list[str]:
    """A sentence if a value nests deeper than Hydra's parser should be asked to go."""
    depth = deepest = 0
    for character in value:
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    return [f"a value nests more than {DEEPEST} levels deep"] if deepest > DEEPEST else []


def refusals(canonical: str, value: str, key: str, annotation: Any) -> list[tuple[str, str]]:
    """Why Hydra cannot read one value here, and what is allowed."""
    try:
        parsed = OverridesParser.create().parse_override(f"{canonical}={value}")
    except HydraException:
        return [(f"the value of {key} cannot be read", "a value, [a, list], or text in 'quotes'")]
    if parsed.is_sweep_override():
        inner, _ = unwrap_optional(annotation)
        return [(f"{key} has several values", f"{key}=[{value}]" if get_origin(inner) is tuple else _SWEEP_ADVICE)]
    return []
