"""One ``.bin/.idx`` pair with what lies beside it; damaged ones are left out within a limit, and never silently."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.training.data.errors import DataError
from launcher.training.data.indexed import Indexed, bin_file, idx_file, open_indexed
from launcher.training.data.prepare import file_digest, record_file, targets_prefix, tokenizer_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from launcher.errors import Fault

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTokenizer:
    """What a corpus was tokenized with, as its record says."""

    name: str
    digest: str
    vocab_size: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """A corpus on disk, or a piece of one."""

    corpus: Indexed
    targets: Indexed | None
    """A 1 for each token that is learnt; None learns all."""
    tokenizer: RecordedTokenizer | None
    """None for shards of another maker."""
    digest: str
    """Names the content: the recorded SHA-256, or that of the index for shards of another maker."""

    @property
    def tokenizer_folder(self) -> Path | None:
        """The Hugging Face tokenizer folder beside it, where there is one."""
        folder = tokenizer_folder(self.corpus.prefix)
        return folder if folder.is_dir() else None


class Quarantine:
    """Leaves out up to ``limit`` bad shards, with a warning each; one more is an error that lists them all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.faults: list[Fault] = []
        """What is wrong with each shard left out."""

    def open(self, prefixes: Sequence[Path], *, verifies_digest: bool) -> tuple[Shard, ...]:
        """The good ones among ``prefixes``.

        Raises:
            DataError: more are bad than may be, or none is good.
        """
        shards = []
        for prefix in prefixes:
            try:
                shards.append(open_shard(prefix, verifies_digest=verifies_digest))
            except DataError as error:
                self.faults += error.faults
                if len(self.faults) > self._limit:
                    raise DataError(self.faults) from error
                _log.warning("left out: %s", error)
        if not shards:
            raise DataError(self.faults)
        return tuple(shards)


def open_shard(prefix: Path, *, verifies_digest: bool) -> Shard:
    """Map a shard and read its record; with ``verifies_digest``, also every byte of it.

    Raises:
        DataError: a file is missing or damaged, or there is no record to verify by.
    """
    corpus = open_indexed(prefix)
    targets = open_indexed(targets_prefix(prefix)) if idx_file(targets_prefix(prefix)).exists() else None
    if targets is not None and len(targets.tokens) != len(corpus.tokens):
        what = f"{bin_file(targets.prefix)} marks {len(targets.tokens):,} of the {len(corpus.tokens):,} tokens"
        raise DataError(f"{what} of {bin_file(prefix)}", code="data.wrong_size", suggestion="prepare the corpus again")
    record = _read_record(prefix)
    if verifies_digest:
        _verify(prefix, record)
    return Shard(
        corpus=corpus,
        targets=targets,
        tokenizer=_recorded_tokenizer(record) if record else None,
        digest=record["bin_sha256"] if record else file_digest(idx_file(prefix)),
    )


def _read_record(prefix: Path) -> dict[str, Any] | None:
    path = record_file(prefix)
    if not path.is_file():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}", code="data.record") from error
    return record


def _recorded_tokenizer(record: dict[str, Any]) -> RecordedTokenizer:
    tokenizer = record["tokenizer"]
    return RecordedTokenizer(name=tokenizer["name"], digest=tokenizer["digest"], vocab_size=tokenizer["vocab_size"])


def _verify(prefix: Path, record: dict[str, Any] | None) -> None:
    if record is None:
        raise DataError(
            f"{prefix} has no record of its digests ({record_file(prefix).name}) to verify by",
            keys=("data.verify",),
            code="data.no_record",
            suggestion="data.verify=size",
        )
    for path, expected in ((bin_file(prefix), record["bin_sha256"]), (idx_file(prefix), record["idx_sha256"])):
        actual = file_digest(path)
        if actual != expected:
            what = f"{path} is damaged: its SHA-256 is {actual[:16]}..., recorded {expected[:16]}..."
            raise DataError(what, code="data.digest", suggestion="copy or prepare it again")
