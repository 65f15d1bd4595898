"""Several values in one word (``training.seed=1,2,3``) are several jobs: each combination of words is one."""

from __future__ import annotations

import math
import re
from itertools import islice, product
from typing import TYPE_CHECKING, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from launcher.compose import library, references
from launcher.errors import Fault, RecipeError
from launcher.recipe import aliases
from launcher.recipe.fields import annotation_at, is_section, unwrap_optional
from launcher.recipe.redact import redact_override

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_JOBS = 1000
"""Of one sweep."""


def expand(words: Sequence[str], *, recipe_dirs: Sequence[Path] = ()) -> tuple[tuple[str, ...], ...]:
    """The words of each job, the last swept word changing fastest, as Hydra's multirun does.

    A choice of a group and a key that holds no text may have several values: ``a,b``, ``choice(a,b)`` or
    ``range(1,4)``. A text is taken as typed, commas and all; a list is written in brackets.

    Raises:
        RecipeError: more than ``MOST_JOBS``.
    """
    groups = library.groups(library.search_path(recipe_dirs))
    each = [_values(word, groups) for word in words]
    if math.prod(map(len, each)) > MOST_JOBS:
        swept = [redact_override(word) for word, texts in zip(words, each, strict=True) if len(texts) > 1]
        raise RecipeError(
            [
                Fault(
                    what="the sweep has too many jobs",
                    where=f"command line: {' '.join(swept)}",
                    allowed=f"at most {MOST_JOBS:,}",
                    code="recipe.sweep",
                )
            ]
        )
    return tuple(product(*each))


def _values(word: str, groups: Sequence[str]) -> tuple[str, ...]:
    """``word`` for each of its values; itself when it has one, or when the composer must say what is wrong."""
    key, equals, value = word.partition("=")
    if not equals or not re.search("[,(]", value) or len(word) > references.LONGEST or not _may_sweep(key, groups):
        return (word,)
    try:
        parsed = OverridesParser.create().parse_override(f"swept={references.hide(value)}")
        if not parsed.is_discrete_sweep() or "glob(" in value:
            return (word,)
        texts = islice(parsed.sweep_string_iterator(), MOST_JOBS + 1)
        return tuple(f"{key}={references.reveal(text)}" for text in texts)
    except HydraException:
        return (word,)


def _may_sweep(key: str, groups: Sequence[str]) -> bool:
    if key in groups:
        return True
    alias = aliases.find_alias(key)
    annotation = annotation_at(alias.key if alias else key)
    if annotation is None or is_section(annotation):
        return False
    inner, _ = unwrap_optional(annotation)
    return inner is not str and get_origin(inner) not in {tuple, dict}
