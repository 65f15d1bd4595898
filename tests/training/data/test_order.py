from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.training.data.order import permute, visit


@given(length=st.integers(1, 3000), key=st.text(max_size=5))
@settings(max_examples=60, deadline=None)
def test_every_index_comes_exactly_once(length: int, key: str) -> None:
    assert sorted(permute(np.arange(length), length=length, key=key)) == list(range(length))


@given(length=st.integers(1, 10**12), position=st.integers(0, 10**12))
@settings(max_examples=100, deadline=None)
def test_any_index_of_any_length_is_found_without_a_table(length: int, position: int) -> None:
    position %= length
    found = permute(np.array([position]), length=length, key="k")
    assert found.tolist() == [feistel_in_plain_integers(position, length, "k")]


def feistel_in_plain_integers(value: int, length: int, key: str) -> int:
    """The same network, written from the papers and without numpy."""
    bits = max(1, ((length - 1).bit_length() + 1) // 2)
    keys = struct.unpack("<8Q", hashlib.blake2b(key.encode(), digest_size=64).digest())
    word, half = 2**64 - 1, 2**bits - 1
    while True:
        left, right = value >> bits, value & half
        for key_of_round in keys:
            mixed = right ^ key_of_round
            mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & word
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & word
            left, right = right, left ^ ((mixed ^ (mixed >> 31)) & half)
        value = (left << bits) | right
        if value < length:
            return value


def test_each_epoch_visits_all_in_another_order() -> None:
    first, second = (visit(np.arange(e * 100, e * 100 + 100), length=100, seed=1, stream="s") for e in (0, 1))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first.tolist() != second.tolist()


def test_a_batch_across_two_epochs_is_the_end_of_one_and_the_beginning_of_the_next() -> None:
    whole = visit(np.arange(20), length=10, seed=1, stream="s")
    assert visit(np.arange(7, 13), length=10, seed=1, stream="s").tolist() == whole[7:13].tolist()


@pytest.mark.parametrize("other", [{"seed": 2, "stream": "s"}, {"seed": 1, "stream": "t"}])
def test_seed_and_stream_change_the_order(other: dict[str, object]) -> None:
    ordinals = np.arange(100)
    assert visit(ordinals, length=100, **other).tolist() != visit(ordinals, length=100, seed=1, stream="s").tolist()  # type: ignore[arg-type]


def test_where_an_index_lands_is_uniform() -> None:
    # Index 0 of 16 over 8,000 keys: chi-squared with 15 degrees of freedom is below 37.7 with probability 0.999.
    landed = np.bincount([int(permute(np.zeros(1, np.int64), length=16, key=str(k))[0]) for k in range(8000)])
    assert ((landed - 500) ** 2 / 500).sum() < 37.7


def test_neighbours_do_not_stay_neighbours() -> None:
    # In a random order of n, the expected number of pairs (i, i + 1) that stay in sequence is (n - 1) / n, about 1.
    order = permute(np.arange(10_000), length=10_000, key="k")
    assert (np.diff(order) == 1).sum() < 10
