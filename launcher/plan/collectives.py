"""Seconds of one collective, from bytes, ranks and links."""

from __future__ import annotations


def all_reduce_seconds(size: float, ranks: int, bytes_per_second: float) -> float:
    """Ring: each rank sends 2 X (n-1)/n bytes."""
    return 2 * _share(ranks) * size / bytes_per_second


def all_gather_seconds(size: float, ranks: int, bytes_per_second: float) -> float:
    """Ring, ``size`` the gathered whole: each rank sends X (n-1)/n bytes. Reduce-scatter is the same."""
    return _share(ranks) * size / bytes_per_second


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks
