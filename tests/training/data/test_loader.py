from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from launcher.training.data.corpus import open_corpora
from launcher.training.data.errors import DataError
from launcher.training.data.loader import micro_batches, read_ahead

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.recipe.schema import Recipe


def test_a_rank_reads_its_stretch_of_the_global_batch() -> None:
    # Step 3 of 16 sequences begins at 48; rank 1 of 2 has the second 8 of them, 4 at a time.
    portions = micro_batches(3, global_batch_size=16, micro_batch_size=4, data_rank=1, data_parallel_size=2)
    assert portions == [range(56, 60), range(60, 64)]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_reading_ahead_gives_the_same_batches_in_the_same_order(
    make_recipe: Callable[..., Recipe], tmp_path: Path, threads: int
) -> None:
    train = open_corpora(make_recipe(), cache=tmp_path).train
    ordinals = [range(4 * i, 4 * i + 4) for i in range(50)]
    read = [batch.tokens for batch in read_ahead(train, ordinals, threads=threads)]
    assert np.array_equal(np.concatenate(read), train.batch(range(200)))


@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_comes_where_its_batch_would(make_recipe: Callable[..., Recipe], tmp_path: Path, threads: int) -> None:
    train = open_corpora(make_recipe(), cache=tmp_path).train
    object.__setattr__(train, "vocab_size", 122)  # ``z`` (122) is no token any more
    first_z = next(
        i for i in range(len(train)) if ord("z") in train.corpora[0][0].corpus.tokens[slice(*_bounds(train, i))]
    )
    batches = read_ahead(train, ([i] for i in range(first_z + 5)), threads=threads)
    assert len([next(batches) for _ in range(first_z)]) == first_z
    with pytest.raises(DataError, match="holds token 122"):
        next(batches)


def _bounds(train: object, ordinal: int) -> tuple[int, int]:
    window = int(train.ids([ordinal])[0])  # type: ignore[attr-defined]
    return train.corpora[0][0].windows.bounds(window)  # type: ignore[attr-defined,no-any-return]


def test_closing_the_iterator_ends_its_threads(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    train = open_corpora(make_recipe(), cache=tmp_path).train
    batches = read_ahead(train, ([i] for i in range(10**9)), threads=2)
    next(batches)
    assert any(thread.name.startswith("loader") for thread in threading.enumerate())
    batches.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("loader") for thread in threading.enumerate())


def test_the_loader_delivers_fifty_times_what_a_training_step_eats(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    """A training step of the tiny model, forward and backward alone, beside reading its sequences, on one core."""
    import torch
    from torch import nn

    train = open_corpora(make_recipe(seq_length=256), cache=tmp_path).train
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        layer = nn.TransformerEncoderLayer(192, 6, 768, dropout=0.0, batch_first=True)
        embed, head = nn.Embedding(257, 192), nn.Linear(192, 257)

        def step(ordinals: range) -> None:
            tokens = torch.from_numpy(train.batch(ordinals))
            logits = head(layer(embed(tokens[:, :-1])))
            nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()

        step_seconds = min(_seconds(step, i) for i in range(5))
        read_seconds = min(_seconds(train.read, i) for i in range(50))
    finally:
        torch.set_num_threads(threads)
    print(f"one layer's step {step_seconds * 1e3:.1f} ms, reading {read_seconds * 1e3:.3f} ms")
    assert step_seconds / read_seconds >= 50


def _seconds(act: Callable[[range], object], number: int) -> float:
    begin = time.perf_counter()
    act(range(8 * number, 8 * number + 8))
    return time.perf_counter() - begin
