from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from launcher.recipe.schema import Data, Model, Recipe, Training

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@pytest.fixture
def make_recipe() -> Callable[..., Recipe]:
    """A recipe by what matters here; the keywords are keys of ``data``, but for the first few."""

    def make(
        *, vocab_size: int = 257, seq_length: int = 16, seed: int = 1, evaluation_batches: int = 1, **data: Any
    ) -> Recipe:
        return Recipe(
            model=Model(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=vocab_size),
            training=Training(
                seq_length=seq_length,
                global_batch_size=8,
                train_steps=1,
                seed=seed,
                evaluation_batches=evaluation_batches,
            ),
            data=Data(**({"train": ("demo",)} | data)),
        )

    return make


@pytest.fixture
def write_lines() -> Callable[[Path, Sequence[dict[str, Any]]], Path]:
    """Write objects as JSON lines."""

    def write(path: Path, records: Sequence[dict[str, Any]]) -> Path:
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return path

    return write
