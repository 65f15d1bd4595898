from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.training.data.corpus import open_corpora
from launcher.training.data.indexed import IndexedWriter
from launcher.training.data.windows import fit_whole_documents

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from launcher.training.data.sequences import Batch


def write(prefix: Path, documents: list[list[int]]) -> str:
    with IndexedWriter(prefix, vocab_size=100) as writer:
        for document in documents:
            writer.add_tokens(np.array(document[:-1]))
            writer.end_document(np.array(document[-1:]))
    return str(prefix)


def read(recipe: Recipe, cache: Path) -> Batch:
    train = open_corpora(recipe, cache=cache).train
    return train.read(range(len(train)))


DOCUMENTS = [[1, 1, 9], [2, 9], [3, 3, 3, 3, 9], [4, 4, 4, 4, 4, 4, 4, 9]]


def test_attention_crosses_documents_unless_asked(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    recipe = make_recipe(train=(write(tmp_path / "c", DOCUMENTS),), seq_length=6, validation_fraction=0, shuffle=False)
    batch = read(recipe, tmp_path)
    assert (batch.documents, batch.positions, batch.is_target) == (None, None, None)
    assert batch.inputs.tolist() == [[1, 1, 9, 2, 9, 3], [3, 3, 3, 9, 4, 4]]
    assert batch.labels.tolist() == [[1, 9, 2, 9, 3, 3], [3, 3, 9, 4, 4, 4]]


def test_positions_start_anew_at_each_document_and_its_first_token_is_not_predicted(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = make_recipe(
        train=(write(tmp_path / "c", DOCUMENTS),),
        seq_length=6,
        validation_fraction=0,
        shuffle=False,
        reset_at_documents=True,
    )
    batch = read(recipe, tmp_path)
    # Tokens 1 1 9 | 2 9 | 3 3 and 3 3 3 9 | 4 4 4, where the second window begins inside a document.
    assert batch.documents is not None
    assert batch.documents.tolist() == [[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 1]]
    assert batch.positions is not None
    assert batch.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 1]]
    assert batch.labels.tolist() == [[1, 9, -100, 9, -100, 3], [3, 3, 9, -100, 4, 4]]


def test_whole_documents_are_padded_and_one_that_is_too_long_loses_its_end(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = make_recipe(
        train=(write(tmp_path / "c", DOCUMENTS),),
        seq_length=6,
        validation_fraction=0,
        shuffle=False,
        packing="whole_documents",
        reset_at_documents=True,
    )
    batch = read(recipe, tmp_path)
    assert batch.tokens.tolist() == [[1, 1, 9, 2, 9, 0, 0], [3, 3, 3, 3, 9, 0, 0], [4, 4, 4, 4, 4, 4, 4]]
    assert batch.labels.tolist() == [
        [1, 9, -100, 9, -100, -100],
        [3, 3, 3, 9, -100, -100],
        [4, 4, 4, 4, 4, 4],
    ]
    assert batch.documents is not None
    assert batch.documents.tolist() == [[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 1], [0] * 7]


def test_padding_is_not_learnt_where_attention_crosses_documents_either(
    make_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    recipe = make_recipe(
        train=(write(tmp_path / "c", DOCUMENTS[:2]),),
        seq_length=6,
        validation_fraction=0,
        packing="whole_documents",
    )
    assert read(recipe, tmp_path).labels.tolist() == [[1, 9, 2, 9, -100, -100]]


@given(lengths=st.lists(st.integers(1, 30), max_size=40), seq_length=st.integers(1, 20))
@settings(deadline=None)
def test_every_document_is_in_one_window_and_no_window_could_take_the_next(lengths: list[int], seq_length: int) -> None:
    starts = np.cumsum([0, *lengths])
    windows = fit_whole_documents(starts, seq_length=seq_length)
    bounds = [windows.bounds(i) for i in range(len(windows))]
    assert all(0 < end - begin <= seq_length + 1 for begin, end in bounds)
    boundaries = set(starts.tolist())
    for (begin, end), (following, _) in pairwise([*bounds, (int(starts[-1]), 0)] if lengths else []):
        assert begin in boundaries
        assert following in boundaries
        documents = [s for s in sorted(boundaries) if begin < s <= following]
        cut = end < following
        assert not cut or (len(documents) == 1 and end - begin == seq_length + 1)
        after = next((s for s in sorted(boundaries) if s > following), None)
        assert after is None or after - begin > seq_length + 1


@pytest.mark.parametrize("packing", ["concatenate", "whole_documents"])
def test_documents_found_by_the_index_are_those_found_by_their_last_token(
    make_recipe: Callable[..., Recipe], tmp_path: Path, packing: str
) -> None:
    generator = np.random.default_rng(0)
    documents = [[*generator.integers(1, 9, generator.integers(1, 12)).tolist(), 9] for _ in range(300)]
    recipe = make_recipe(
        train=(write(tmp_path / "c", documents),), seq_length=24, reset_at_documents=True, packing=packing
    )
    batch = read(recipe, tmp_path)
    assert batch.documents is not None
    ends = np.cumsum(batch.tokens == 9, axis=1)
    expected = np.concatenate([np.zeros((len(ends), 1), int), ends[:, :-1]], axis=1)
    assert np.array_equal(batch.documents, expected)
