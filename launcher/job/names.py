"""Names a service accepts, made from names a person chose."""

from __future__ import annotations

import hashlib
import re

LONGEST_NAME = 255
"""Azure ML: a job name matches ``^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$``, and an experiment's is no longer than 256."""
_LONGEST_SLUG = 80
"""Leaves room for intent and attempt, and for names of files made from the job's name (255 bytes on Linux)."""


def experiment_name(text: str) -> str:
    """``feature/llama 8B`` as ``feature-llama-8B``: letters, digits, ``_`` and ``-``, first a letter or digit."""
    return _cut(_plain(text) or "launcher", LONGEST_NAME)


def display_name(text: str) -> str:
    """``text`` on one line, as it is unless it is too long."""
    return _cut(" ".join(text.split()) or "unnamed", LONGEST_NAME)


def run_name(text: str, *, intent: str, attempt: int) -> str:
    """``gpt-tiny-5d0c91aa7be2f013-1``: the slug of ``text``, 16 digits of the intent, the attempt.

    Lower case, because azure-ai-ml lowers the names it is given.
    """
    slug = _cut(_plain(text).lower() or "run", _LONGEST_SLUG)
    return f"{slug}-{intent[:16]}-{attempt}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[: longest - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
