"""The order in which sequences are visited: a permutation an epoch that any rank computes for any index by itself.

Nothing is stored, whatever the length: a Feistel network (M. Luby and C. Rackoff, SIAM J. Comput. 17(2), 1988) permutes
the next even power of two, and results beyond the length are permuted again until they fall below it (*cycle walking*:
J. Black and P. Rogaway, CT-RSA 2002).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_ROUNDS = 8
# Four make a strong pseudorandom permutation of large halves; small lengths have halves of a few bits and need more.


def visit(ordinals: npt.NDArray[np.int64], *, length: int, seed: int, stream: str) -> npt.NDArray[np.int64]:
    """The index, below ``length``, visited at each of ``ordinals`` in an endless order of shuffled epochs.

    Ordinal ``epoch * length + i`` is the ``i``-th visit of ``epoch``, in which every index comes once.
    ``stream`` tells apart corpora that share a seed.
    """
    epochs, positions = np.divmod(ordinals, length)
    indices = np.empty_like(positions)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        indices[chosen] = permute(positions[chosen], length=length, key=f"{seed}/{stream}/{epoch}")
    return indices


def permute(positions: npt.NDArray[np.int64], *, length: int, key: str) -> npt.NDArray[np.int64]:
    """Where the permutation of ``range(length)`` drawn from ``key`` takes each of ``positions``."""
    half_bits = max(1, ((length - 1).bit_length() + 1) // 2)
    keys = _round_keys(key)
    values = _feistel(positions.astype(np.uint64), half_bits, keys)
    while (beyond := np.flatnonzero(values >= length)).size:
        values[beyond] = _feistel(values[beyond], half_bits, keys)
    return values.astype(np.int64)


@lru_cache(maxsize=64)
def _round_keys(key: str) -> tuple[np.uint64, ...]:
    digest = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
    return tuple(np.frombuffer(digest, "<u8"))


def _feistel(values: npt.NDArray[np.uint64], half_bits: int, keys: tuple[np.uint64, ...]) -> npt.NDArray[np.uint64]:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << shift) | right


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014): every bit depends on every bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
