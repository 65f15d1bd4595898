"""The one gate of a recipe: plain data in, typed and frozen values out, every fault at once.

The composer's dict on a laptop and ``job.json`` inside the job pass the same gate.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from launcher.errors import RecipeError
from launcher.recipe.decoder import Decoder
from launcher.recipe.fields import plain
from launcher.recipe.schema import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping


def decode(mapping: Mapping[str, Any]) -> Recipe:
    """The recipe a plain mapping says.

    Raises:
        RecipeError: with every unknown key, missing key, wrong type and value out of limits.
    """
    decoder = Decoder()
    recipe = decoder.section(Recipe, mapping)
    if recipe is None:
        raise RecipeError(decoder.faults)
    return recipe


def encode(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON data, every key in it; ``decode`` is its inverse."""
    encoded: dict[str, Any] = plain(recipe)
    return encoded


def digest(recipe: Recipe) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON: the identity of what was asked."""
    canonical = json.dumps(encode(recipe), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
