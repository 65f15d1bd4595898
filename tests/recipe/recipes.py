"""A small valid recipe as plain data, for tests to change."""

from __future__ import annotations

from typing import Any


def small_recipe() -> dict[str, Any]:
    """The four keys of a model and the two of training that have no default."""
    return {
        "model": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256},
        "training": {"seq_length": 32, "global_batch_size": 8},
    }


def with_key(path: str, value: Any) -> dict[str, Any]:
    """The small recipe with one dotted key set."""
    recipe = small_recipe()
    section: dict[str, Any] = recipe
    *above, last = path.split(".")
    for name in above:
        section = section.setdefault(name, {})
    section[last] = value
    return recipe
