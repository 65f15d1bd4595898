"""Which corpus each sequence of a blend comes from: shares by weight, evenly interleaved, computed for any ordinal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_PERIOD = 1 << 16
# Sequences after which the interleaving repeats: shares are kept to 1 in 65,536.


@dataclass(frozen=True, kw_only=True, eq=False)
class Blend:
    """A repeating pattern of corpora."""

    corpora: npt.NDArray[np.int64]
    """The corpus at each place of the pattern."""
    turns: npt.NDArray[np.int64]
    """How often that corpus came before in the pattern."""
    shares: npt.NDArray[np.int64]
    """How often each corpus comes in the whole pattern."""

    def locate(self, ordinals: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The corpus at each of ``ordinals``, and the ordinal within that corpus."""
        repeats, places = np.divmod(ordinals, len(self.corpora))
        corpora = self.corpora[places]
        return corpora, repeats * self.shares[corpora] + self.turns[places]


def make_blend(weights: Sequence[float]) -> Blend:
    """Interleave corpora by ``weights`` (positive): after k sequences each has its share of k within about one.

    The j-th of a corpus's m places in the pattern stands as near as can be to ``(j + 1/2) / m`` of its length.
    """
    shares = _whole_shares(weights)
    corpora = np.repeat(np.arange(len(shares)), shares)
    turns = np.concatenate([np.arange(share) for share in shares])
    order = np.argsort((turns + 0.5) / shares[corpora], kind="stable")
    return Blend(corpora=corpora[order], turns=turns[order], shares=shares)


def _whole_shares(weights: Sequence[float]) -> npt.NDArray[np.int64]:
    """Largest remainders; each corpus has at least one place."""
    exact = np.array(weights, np.float64) / sum(weights) * _PERIOD
    shares = np.maximum(np.floor(exact).astype(np.int64), 1)
    missing = max(0, _PERIOD - int(shares.sum()))
    shares[np.argsort(shares - exact, kind="stable")[:missing]] += 1
    return shares
