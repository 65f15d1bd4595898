"""Fixed-length sequences of one or several corpora, in an endless order that is a pure function of seed and ordinal."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from launcher.training.data.errors import DataError
from launcher.training.data.order import visit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from launcher.training.data.blend import Blend
    from launcher.training.data.windows import Part

    _Window = tuple[Part, int, int]
    """The first token of a window in its part, and one past the last."""

IGNORED = -100
"""Label of a token that is not learnt (torch's ``ignore_index``)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Sequences of ``seq_length + 1`` tokens: inputs are all but the last, labels all but the first."""

    tokens: npt.NDArray[np.int64]
    """[sequences, seq_length + 1]; padding is token 0."""
    is_target: npt.NDArray[np.bool_] | None
    """[sequences, seq_length + 1]: which tokens are to be predicted from those before; None means all."""
    documents: npt.NDArray[np.int32] | None
    """[sequences, seq_length + 1]: the document each token is of, counted from 0 in its sequence, and padding as one
    more; None where attention crosses documents."""

    @property
    def inputs(self) -> npt.NDArray[np.int64]:
        """[sequences, seq_length]: what the model reads."""
        return self.tokens[:, :-1]

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """[sequences, seq_length]: what it is to say, ``IGNORED`` where nothing is learnt."""
        if self.is_target is None:
            return self.tokens[:, 1:]
        return np.where(self.is_target[:, 1:], self.tokens[:, 1:], IGNORED)

    @property
    def positions(self) -> npt.NDArray[np.int64] | None:
        """[sequences, seq_length]: the place of each input in its document; None where attention crosses documents."""
        if self.documents is None:
            return None
        places = np.broadcast_to(np.arange(self.tokens.shape[1] - 1), self.inputs.shape)
        begins = np.zeros_like(places)
        begins[:, 1:] = np.where(np.diff(self.documents[:, :-1], axis=1) > 0, places[:, 1:], 0)
        return places - np.maximum.accumulate(begins, axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequences:
    """An endless order over the windows of ``corpora``; two that were made alike give the same on any rank."""

    corpora: tuple[tuple[Part, ...], ...]
    """The parts of each corpus."""
    seq_length: int
    vocab_size: int
    """Tokens at or beyond it are refused."""
    seed: int
    stream: str
    """Tells apart orders that share a seed."""
    shuffle: bool
    reset_at_documents: bool
    blend: Blend | None = field(default=None)
    """Interleaving by weight; None visits every window of every corpus once an epoch."""

    def __len__(self) -> int:
        """Windows in all corpora together; without a blend, the length of an epoch."""
        return int(self._first[-1])

    def ids(self, ordinals: Sequence[int]) -> npt.NDArray[np.int64]:
        """Which window, counted through all corpora, stands at each of ``ordinals``."""
        wanted = np.asarray(ordinals, np.int64)
        if self.blend is None:
            return self._visit(wanted, length=len(self), stream=self.stream)
        numbers, turns = self.blend.locate(wanted)
        ids = np.empty_like(wanted)
        for number in np.unique(numbers):
            chosen = numbers == number
            first, last = self._corpus_first[number : number + 2].tolist()
            ids[chosen] = first + self._visit(turns[chosen], length=last - first, stream=f"{self.stream}/{number}")
        return ids

    def batch(self, ordinals: Sequence[int]) -> npt.NDArray[np.int64]:
        """The tokens of the windows at ``ordinals``: [ordinals, seq_length + 1].

        Raises:
            DataError: a token is outside the model's vocabulary.
        """
        return self._tokens(self._windows(ordinals))

    def read(self, ordinals: Sequence[int]) -> Batch:
        """The windows at ``ordinals`` with what is learnt of them and where their documents begin.

        Raises:
            DataError: a token is outside the model's vocabulary.
        """
        windows = self._windows(ordinals)
        documents = self._documents(windows) if self.reset_at_documents else None
        return Batch(tokens=self._tokens(windows), is_target=self._is_target(windows, documents), documents=documents)

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        return tuple(part for parts in self.corpora for part in parts)

    @cached_property
    def _first(self) -> npt.NDArray[np.int64]:
        """The id of each part's first window, and the number of windows at the end."""
        return np.cumsum([0, *(len(part.windows) for part in self._parts)], dtype=np.int64)

    @cached_property
    def _corpus_first(self) -> npt.NDArray[np.int64]:
        """The same for each corpus."""
        lasts = np.cumsum([0, *map(len, self.corpora)])
        return self._first.take(lasts)

    def _visit(self, ordinals: npt.NDArray[np.int64], *, length: int, stream: str) -> npt.NDArray[np.int64]:
        if not self.shuffle:
            return ordinals % length
        return visit(ordinals, length=length, seed=self.seed, stream=stream)

    def _windows(self, ordinals: Sequence[int]) -> list[_Window]:
        ids = self.ids(ordinals)
        numbers = np.searchsorted(self._first, ids, side="right") - 1
        indices = ids - self._first[numbers]
        parts = [self._parts[number] for number in numbers.tolist()]
        return [(part, *part.windows.bounds(index)) for part, index in zip(parts, indices.tolist(), strict=True)]

    def _tokens(self, windows: list[_Window]) -> npt.NDArray[np.int64]:
        tokens = np.zeros((len(windows), self.seq_length + 1), np.int64)
        for row, (part, begin, end) in enumerate(windows):
            tokens[row, : end - begin] = part.corpus.tokens[begin:end]
        if windows and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocab_size:
            raise self._foreign_token(windows, tokens)
        return tokens

    def _documents(self, windows: list[_Window]) -> npt.NDArray[np.int32]:
        begins = np.zeros((len(windows), self.seq_length + 1), np.int32)
        for row, (part, begin, end) in enumerate(windows):
            np.add.at(begins[row], part.corpus.documents_between(begin, end) - begin, 1)
            begins[row, end - begin : end - begin + 1] = 1  # padding counts as one more document
        return np.cumsum(begins, axis=1, dtype=np.int32)

    def _is_target(
        self, windows: list[_Window], documents: npt.NDArray[np.int32] | None
    ) -> npt.NDArray[np.bool_] | None:
        if documents is None and not self._masks:
            return None
        is_target = np.zeros((len(windows), self.seq_length + 1), np.bool_)
        for row, (part, begin, end) in enumerate(windows):
            is_target[row, 1 : end - begin] = True if part.targets is None else part.targets.tokens[begin + 1 : end]
        if documents is not None:
            # Nothing before the first token of a document says what it will be.
            is_target[:, 1:] &= documents[:, 1:] == documents[:, :-1]
        return is_target

    @cached_property
    def _masks(self) -> bool:
        """Whether some window has padding or tokens that are not learnt."""
        return any(part.targets is not None or part.windows.may_be_short for part in self._parts)

    def _foreign_token(self, windows: list[_Window], tokens: npt.NDArray[np.int64]) -> DataError:
        foreign = (tokens < 0) | (tokens >= self.vocab_size)
        row = int(np.argmax(foreign.any(axis=1)))
        prefix = windows[row][0].corpus.prefix
        return DataError(
            f"{prefix} holds token {int(tokens[row][foreign[row]][0])}, the model has {self.vocab_size} embedding rows",
            keys=("data.train", "model.vocab_size"),
            code="data.vocabulary",
            allowed=f"0 to {self.vocab_size - 1}",
            suggestion="model.vocab_size of the corpus's tokenizer, or a corpus of this model's tokenizer",
        )
