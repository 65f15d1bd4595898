"""From a recipe's ``data`` section to the sequences that training and evaluation read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from launcher.training.data.blend import Blend, make_blend
from launcher.training.data.errors import DataError
from launcher.training.data.library import Corpus, Library, check_one_tokenizer
from launcher.training.data.sequences import Sequences
from launcher.training.data.windows import CutWindows, Part, Windows, fit_whole_documents

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.errors import Fault
    from launcher.recipe.schema import Recipe
    from launcher.training.data.shard import Shard


@dataclass(frozen=True, kw_only=True)
class Corpora:
    """What a run reads."""

    train: Sequences
    validation: Sequences | None
    """Held-out sequences of all corpora together; None when nothing is held out."""
    validation_sets: dict[str, Sequences]
    """The same for each corpus alone, by its name in the recipe; those too short for one sequence are not there."""
    tokenizer_description: str
    """``bytes, 257 tokens``."""
    tokenizer_folder: Path | None
    """The tokenizer as a Hugging Face folder, to be left beside checkpoints; None for shards of another maker."""
    digest: str
    """Names content and order: alike on two ranks, or before and after a restart, the same ordinal is the same text."""
    quarantined: tuple[Fault, ...]
    """What is wrong with each shard that was left out."""


def open_corpora(recipe: Recipe, *, cache: Path) -> Corpora:
    """Open the corpora of ``recipe``, preparing text into ``cache`` where that has not been done.

    Any number of ranks and processes may call this at once. Relative paths are taken from the working folder.

    Raises:
        DataError: none is named; a corpus or the tokenizer cannot be read, or has less than one sequence.
    """
    if not recipe.data.train:
        raise DataError(
            "data.train names nothing to read",
            keys=("data.train",),
            code="data.nothing_to_read",
            allowed="shards by their prefix, .txt, .jsonl or .parquet files, or demo",
            suggestion="data=demo",
        )
    library = Library(recipe, cache)
    train = [library.open(name, key="data.train") for name in recipe.data.train]
    held_out = [library.open(name, key="data.validation") for name in recipe.data.validation]
    check_one_tokenizer(train + held_out)
    trained = _training(recipe, train)
    sets = _validation_sets(recipe, train, held_out)
    first = train[0].shards[0]
    return Corpora(
        train=trained,
        validation=_together(recipe, sets),
        validation_sets={name: _sequences(recipe, (parts,), stream="validation") for name, parts in sets.items()},
        tokenizer_description=_describe(first),
        tokenizer_folder=first.tokenizer_folder,
        digest=_digest(recipe, train + held_out),
        quarantined=tuple(library.quarantine.faults),
    )


def _training(recipe: Recipe, corpora: list[Corpus]) -> Sequences:
    parts = tuple(_parts(corpus, lambda shard: _split(recipe, shard)[0]) for corpus in corpora)
    for corpus, own in zip(corpora, parts, strict=True):
        if not _windows(own):
            tokens = _tokens(corpus) - int(_tokens(corpus) * _held_out_fraction(recipe))
            raise _too_short(recipe, corpus, f"the {tokens:,} tokens of {corpus.name} to train on", tokens=tokens)
    return _sequences(recipe, parts, stream="train")


def _validation_sets(recipe: Recipe, train: list[Corpus], held_out: list[Corpus]) -> dict[str, tuple[Part, ...]]:
    """What is held out, by corpus; only a corpus that was named for it has to be long enough for one sequence."""
    if held_out:
        sets = {corpus.name: _parts(corpus, lambda shard: _split(recipe, shard)[0]) for corpus in held_out}
        for corpus in held_out:
            if not _windows(sets[corpus.name]):
                raise _too_short(
                    recipe, corpus, f"the {_tokens(corpus):,} tokens of {corpus.name}", tokens=_tokens(corpus)
                )
        return sets
    sets = {corpus.name: _parts(corpus, lambda shard: _split(recipe, shard)[1]) for corpus in train}
    found = {name: parts for name, parts in sets.items() if _windows(parts)}
    if not found and _held_out_fraction(recipe) and recipe.training.evaluation_batches:
        held = max(int(_tokens(corpus) * recipe.data.validation_fraction) for corpus in train)
        raise _too_short(recipe, train[0], f"the {held:,} tokens held out for evaluation", tokens=held)
    return found


def _together(recipe: Recipe, sets: dict[str, tuple[Part, ...]]) -> Sequences | None:
    return _sequences(recipe, tuple(sets.values()), stream="validation") if sets else None


def _sequences(recipe: Recipe, corpora: tuple[tuple[Part, ...], ...], *, stream: str) -> Sequences:
    """Training follows the recipe's seed, shuffle and weights; evaluation reads the same random choice every time."""
    trains = stream == "train"
    return Sequences(
        corpora=corpora,
        seq_length=recipe.training.seq_length,
        vocab_size=recipe.model.vocab_size,
        seed=recipe.training.seed if trains else 0,
        stream=stream,
        shuffle=recipe.data.shuffle if trains else True,
        reset_at_documents=recipe.data.reset_at_documents,
        blend=_blend(recipe) if trains else None,
    )


def _parts(corpus: Corpus, windows: Callable[[Shard], Windows]) -> tuple[Part, ...]:
    return tuple(Part(corpus=s.corpus, targets=s.targets, windows=windows(s)) for s in corpus.shards)


def _split(recipe: Recipe, shard: Shard) -> tuple[Windows, Windows]:
    """What of ``shard`` is trained on, and its end, which is held out; no token is in both."""
    tokens, seq_length = len(shard.corpus.tokens), recipe.training.seq_length
    cut = tokens - int(tokens * _held_out_fraction(recipe))
    if recipe.data.packing == "concatenate":
        return (
            CutWindows(start=0, stop=cut, seq_length=seq_length),
            CutWindows(start=cut, stop=tokens, seq_length=seq_length),
        )
    starts = shard.corpus.document_starts()
    first = int(np.searchsorted(starts, cut))
    return (
        fit_whole_documents(starts[: first + 1], seq_length=seq_length),
        fit_whole_documents(starts[first:], seq_length=seq_length),
    )


def _held_out_fraction(recipe: Recipe) -> float:
    return 0.0 if recipe.data.validation else recipe.data.validation_fraction


def _blend(recipe: Recipe) -> Blend | None:
    weights, corpora = recipe.data.train_weights, recipe.data.train
    if not weights:
        return None
    if len(weights) != len(corpora) or min(weights) <= 0:
        raise DataError(
            f"{len(weights)} weights, the smallest {min(weights):g}, for {len(corpora)} training corpora",
            keys=("data.train_weights", "data.train"),
            code="data.weights",
            allowed="one weight above 0 for each training corpus",
        )
    return make_blend(weights)


def _too_short(recipe: Recipe, corpus: Corpus, what: str, *, tokens: int) -> DataError:
    length = recipe.training.seq_length
    return DataError(
        f"{what} are less than one sequence of {length:,} tokens and its last target",
        keys=(corpus.key, "training.seq_length", "data.validation_fraction"),
        code="data.too_short",
        allowed=f"at least {length + 1:,} tokens",
        suggestion=f"training.seq_length={tokens - 1}" if tokens > 1 else None,
    )


def _windows(parts: tuple[Part, ...]) -> int:
    return sum(len(part.windows) for part in parts)


def _tokens(corpus: Corpus) -> int:
    return sum(len(shard.corpus.tokens) for shard in corpus.shards)


def _describe(shard: Shard) -> str:
    if shard.tokenizer is None:
        return "unknown tokenizer"
    return f"{shard.tokenizer.name}, {shard.tokenizer.vocab_size} tokens"


def _digest(recipe: Recipe, corpora: list[Corpus]) -> str:
    data, training = recipe.data, recipe.training
    content = {
        "shards": [[corpus.key, [shard.digest for shard in corpus.shards]] for corpus in corpora],
        "weights": data.train_weights,
        "validation_fraction": data.validation_fraction,
        "packing": data.packing,
        "shuffle": data.shuffle,
        "seed": training.seed,
        "seq_length": training.seq_length,
    }
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
