"""Where sequences begin and end in the tokens of a corpus."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from launcher.training.data.indexed import Indexed


class Windows(Protocol):
    """Stretches of at most ``seq_length + 1`` tokens: inputs are all but the last, targets all but the first."""

    @property
    def may_be_short(self) -> bool:
        """Whether a window may have fewer tokens."""

    def __len__(self) -> int:
        """How many there are."""

    def bounds(self, index: int) -> tuple[int, int]:
        """The first token of a window, and one past its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutWindows:
    """Documents one after the other, cut every ``seq_length`` tokens; neighbours share one, as in Megatron's GPT data.

    Tokens after the last whole window are not used.
    """

    start: int
    stop: int
    seq_length: int
    may_be_short: ClassVar[bool] = False

    def __len__(self) -> int:
        return max(0, (self.stop - self.start - 1) // self.seq_length)

    def bounds(self, index: int) -> tuple[int, int]:
        """A whole window."""
        begin = self.start + index * self.seq_length
        return begin, begin + self.seq_length + 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeDocumentWindows:
    """As many whole documents as fit, in the order of the corpus; a longer document loses its end."""

    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    may_be_short: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.begins)

    def bounds(self, index: int) -> tuple[int, int]:
        """A window, perhaps shorter than ``seq_length + 1``: the rest is padding."""
        return int(self.begins[index]), int(self.ends[index])


def fit_whole_documents(starts: npt.NDArray[np.int64], *, seq_length: int) -> WholeDocumentWindows:
    """Windows of whole documents, where ``starts`` is each document's first token and, at the end, one past the last.

    Costs 16 bytes a window, and one search in ``starts`` for each.
    """
    begins, ends, document, documents = [], [], 0, len(starts) - 1
    boundaries = starts.tolist()
    while document < documents:
        begin = boundaries[document]
        following = bisect_right(boundaries, begin + seq_length + 1, lo=document) - 1
        document = max(following, document + 1)
        begins.append(begin)
        ends.append(min(boundaries[document], begin + seq_length + 1))
    return WholeDocumentWindows(begins=np.array(begins, np.int64), ends=np.array(ends, np.int64))


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The windows of one shard."""

    corpus: Indexed
    targets: Indexed | None
    """A 1 for each token that is learnt; None learns all."""
    windows: Windows
