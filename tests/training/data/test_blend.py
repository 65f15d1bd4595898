from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.training.data.blend import make_blend


@given(weights=st.lists(st.floats(0.01, 10), min_size=1, max_size=6), count=st.integers(1, 5000))
@settings(max_examples=60, deadline=None)
def test_at_any_point_each_corpus_has_its_share(weights: list[float], count: int) -> None:
    corpora, _ = make_blend(weights).locate(np.arange(count))
    share = np.array(weights) / sum(weights)
    # Evenly spread points lag by at most one, and by half a place for each other corpus that ties with it.
    assert np.abs(np.bincount(corpora, minlength=len(weights)) - share * count).max() <= 1 + len(weights) / 2


@given(weights=st.lists(st.floats(0.01, 10), min_size=1, max_size=4), first=st.integers(0, 200_000))
@settings(max_examples=30, deadline=None)
def test_each_corpus_is_read_in_its_own_order_without_gaps(weights: list[float], first: int) -> None:
    blend = make_blend(weights)
    corpora, turns = blend.locate(np.arange(first, first + 500))
    for number in np.unique(corpora):
        own = turns[corpora == number]
        assert own.tolist() == list(range(own[0], own[0] + len(own)))


def test_three_to_one_is_three_of_four() -> None:
    corpora, turns = make_blend([3, 1]).locate(np.arange(8))
    assert np.bincount(corpora).tolist() == [6, 2]
    assert turns[corpora == 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_pattern_goes_on_across_its_end() -> None:
    # The pattern is 65,536 long; half of it is 32,768.
    corpora, turns = make_blend([1, 1]).locate(np.array([65_536, 65_537, 2 * 65_536]))
    assert turns.tolist() == [32_768, 32_768, 65_536]
    assert sorted(corpora[:2].tolist()) == [0, 1]


@pytest.mark.parametrize("weights", [[1e-9, 1], [1e9, 1e-9, 1e-9]])
def test_no_weight_is_so_small_that_its_corpus_never_comes(weights: list[float]) -> None:
    assert make_blend(weights).shares.min() >= 1
