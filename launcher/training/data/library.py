"""Corpora by the names a recipe gives them; text is tokenized into the cache the first time."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.training.data.cache import cached_folder
from launcher.training.data.demo import DEMO_TEXT
from launcher.training.data.documents import FORMATS, check_format
from launcher.training.data.errors import DataError
from launcher.training.data.indexed import bin_file, idx_file
from launcher.training.data.prepare import file_digest, make_tokenizer, prepare, readable_formats, targets_prefix
from launcher.training.data.shard import Quarantine, Shard
from launcher.training.data.tokenizer import Tokenizer, check_vocabulary, load_tokenizer

if TYPE_CHECKING:
    from launcher.recipe.schema import Recipe

_LAYOUT = 1
# Part of every cache key: raise it when the same text would be prepared otherwise.


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """One entry of ``data.train`` or ``data.validation``, opened."""

    name: str
    """As the recipe spells it."""
    key: str
    """The recipe key that names it."""
    shards: tuple[Shard, ...]


class Library:
    """Opens the corpora of one recipe; shards that are left out are told to ``quarantine``."""

    def __init__(self, recipe: Recipe, cache: Path) -> None:
        self.quarantine = Quarantine(recipe.data.quarantine_limit)
        self._data = recipe.data
        self._vocab_size = recipe.model.vocab_size
        self._cache = cache
        self._digests: dict[Path, str] = {}

    def open(self, name: str, *, key: str) -> Corpus:
        """The corpus ``name`` of the recipe's ``key``: ``demo``, or files or shards by path or pattern.

        Raises:
            DataError: it is none of these, or cannot be read.
        """
        paths = _paths(name, key=key)
        prefixes = _prefixes(paths) or [self._prepared(paths, key=key)]
        shards = self.quarantine.open(prefixes, verifies_digest=self._data.verify == "digest")
        return Corpus(name=name, key=key, shards=shards)

    def _prepared(self, paths: list[Path], *, key: str) -> Path:
        data = self._data
        for path in paths:
            check_format(path, formats=readable_formats(data.format), keys=(key,))
        tokenizer = self._tokenizer
        settings = {
            "layout": _LAYOUT,
            "sources": [[path.suffix, self._digest(path)] for path in paths],
            "format": data.format,
            "text_key": data.text_key,
            "tokenizer": tokenizer.digest,
        }

        def make(folder: Path) -> None:
            prepare(paths, folder / "corpus", tokenizer, format=data.format, text_key=data.text_key)

        return cached_folder(self._cache / "corpora", settings, make) / "corpus"

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        if self._data.tokenizer == "bpe":
            tokenizer: Tokenizer = self._trained_bpe()
        else:
            tokenizer = make_tokenizer(self._data.tokenizer, (), vocab_size=None, text_key=self._data.text_key)
        check_vocabulary(tokenizer, self._vocab_size)
        return tokenizer

    def _trained_bpe(self) -> Tokenizer:
        """Trained on all text among the training corpora."""
        names = self._data.train
        texts = [path for name in names for path in _paths(name, key="data.train") if path.suffix in FORMATS]
        for path in texts:
            check_format(path, keys=("data.train",))
        if not texts:
            raise DataError(
                "a bpe is trained on the training text, and there is none",
                keys=("data.tokenizer", "data.train"),
                code="data.no_text",
                allowed="bytes, the tokenizer folder of the shards, or text among the training corpora",
            )
        text_key, vocab_size = self._data.text_key, self._vocab_size
        sources = [[path.suffix, self._digest(path)] for path in texts]
        settings = {"layout": _LAYOUT, "sources": sources, "text_key": text_key, "vocab_size": vocab_size}

        def make(folder: Path) -> None:
            make_tokenizer("bpe", texts, vocab_size=vocab_size, text_key=text_key).save(folder)

        return load_tokenizer(cached_folder(self._cache / "tokenizers", settings, make), name="bpe")

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = file_digest(path)
        return self._digests[path]


def check_one_tokenizer(corpora: list[Corpus]) -> None:
    """Refuse corpora that are known to be of different tokenizers.

    Raises:
        DataError: naming one corpus of each.
    """
    known = {
        shard.tokenizer.digest: (corpus, shard.tokenizer)
        for corpus in corpora
        for shard in corpus.shards
        if shard.tokenizer
    }
    if len(known) > 1:
        made = ", ".join(f"{corpus.name} ({tokenizer.name})" for corpus, tokenizer in known.values())
        raise DataError(
            f"the corpora were tokenized differently: {made}",
            keys=tuple(dict.fromkeys(corpus.key for corpus, _ in known.values())),
            code="data.mixed_tokenizers",
            allowed="corpora of one tokenizer",
        )


def _paths(name: str, *, key: str) -> list[Path]:
    """The files that ``name`` means, by name; a prefix of shards counts as one."""
    if name == "demo":
        return [DEMO_TEXT]
    path = Path(name).expanduser()
    if glob.has_magic(name) and not path.exists():
        found = [Path(match) for match in sorted(glob.glob(str(path), recursive=True)) if Path(match).is_file()]  # noqa: PTH207
        if not found:
            raise DataError(f"nothing matches {name}", keys=(key,), code="data.missing")
        return found
    return [path]


def _prefixes(paths: list[Path]) -> list[Path]:
    """The shards among ``paths``, by prefix or by file; their marks of what is learnt are none themselves."""
    files = {path.with_suffix("") for path in paths if path.suffix in (".bin", ".idx")}
    prefixes = files or {path for path in paths if bin_file(path).exists() or idx_file(path).exists()}
    marks = {targets_prefix(prefix) for prefix in prefixes}
    return sorted(prefixes - marks)
