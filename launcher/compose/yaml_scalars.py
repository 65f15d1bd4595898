"""What an unquoted word of a YAML file means, and which words mean different things to different readers."""

from __future__ import annotations

import re
from typing import Any

from launcher.compose import references

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = {word: truth == "true" for truth in ("true", "false") for word in (truth, truth.title(), truth.upper())}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TRAPS = (
    (re.compile(r"(?i:yes|no|on|off)"), "YAML readers disagree on whether {text} is a truth value or a word"),
    (re.compile(r"[-+]?0[0-9_]+"), "{text} is octal to some YAML readers and decimal to others"),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"),
        "{text} is a base-60 number to some YAML readers",
    ),
)

LONGEST_NUMBER = 100
"""Digits of a number; Python itself refuses to read very long ones."""


def trap(text: str) -> str | None:
    """Why YAML 1.1 and 1.2 readers disagree about ``text``; None when they agree."""
    return next((what.format(text=text) for pattern, what in _TRAPS if pattern.fullmatch(text)), None)


def meaning(text: str) -> Any:
    """The value: YAML 1.2's core schema, with ``_`` in numbers and ``1e12`` as Hydra reads them."""
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _INTEGER.fullmatch(text) and len(text) <= LONGEST_NUMBER:
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return float(text.replace(".", "").lower()) if _NOT_FINITE.fullmatch(text) else references.hide(text)
