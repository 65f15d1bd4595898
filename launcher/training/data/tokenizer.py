"""Text to tokens: bytes, a byte-pair encoding trained on the spot, or a Hugging Face tokenizer folder.

Each of them saves itself as a Hugging Face tokenizer folder, so that what was trained can be read elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from launcher.training.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import tokenizers

END_OF_DOCUMENT = "<|endoftext|>"
"""What ``bytes`` and ``bpe`` call the token after each document (GPT-2's word for it)."""
_SMALLEST_BPE = 257
# 256 bytes and the end-of-document token: below it some text could not be written.


@dataclass(frozen=True, kw_only=True, eq=False)
class Located:
    """Tokens and the characters each was made of."""

    tokens: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]
    """First character of each token."""
    ends: npt.NDArray[np.int64]
    """One past its last character."""


class Tokenizer(Protocol):
    """Turns text into token ids and back."""

    @property
    def name(self) -> str:
        """As asked for: ``bytes``, ``bpe`` or the folder."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""

    @property
    def end_of_document(self) -> int:
        """The token id that follows each document."""

    @property
    def digest(self) -> str:
        """SHA-256 over everything that decides the ids."""

    def encode(self, texts: Sequence[str]) -> list[npt.NDArray[Any]]:
        """The tokens of each text, without a token before or after; special tokens in a text are plain text."""

    def encode_located(self, text: str, *, special: bool) -> Located:
        """The tokens of ``text`` and where each stands in it; with ``special``, special tokens are themselves."""

    def decode(self, tokens: npt.NDArray[Any]) -> str:
        """The text of ``tokens``."""

    def save(self, folder: Path) -> None:
        """Write a Hugging Face tokenizer folder with the same ids."""


class ByteTokenizer:
    """A token a byte of UTF-8 (0 to 255), and 256 after each document."""

    name = "bytes"
    vocab_size = 257
    end_of_document = 256

    @property
    def digest(self) -> str:
        """SHA-256 over the name: there is nothing to learn."""
        return hashlib.sha256(b"bytes 257").hexdigest()

    def encode(self, texts: Sequence[str]) -> list[npt.NDArray[Any]]:
        """The bytes of each text."""
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def encode_located(self, text: str, *, special: bool) -> Located:
        """The bytes of ``text``; there are no special tokens to spell."""
        starts = np.repeat(np.arange(len(text)), [len(character.encode()) for character in text])
        return Located(tokens=self.encode([text])[0], starts=starts, ends=starts + 1)

    def decode(self, tokens: npt.NDArray[Any]) -> str:
        """The text of ``tokens``; half characters become the replacement character, ends of documents nothing."""
        return tokens[tokens < 256].astype(np.uint8).tobytes().decode(errors="replace")

    def save(self, folder: Path) -> None:
        """Write a byte-level BPE without merges: the same ids in Hugging Face's form."""
        from tokenizers import models

        vocabulary = {_byte_letter(byte): byte for byte in range(256)}
        model = _byte_level(models.BPE(vocab=vocabulary, merges=[]))
        model.add_special_tokens([END_OF_DOCUMENT])
        _save(model, END_OF_DOCUMENT, folder)


@dataclass(frozen=True, kw_only=True)
class LearnedTokenizer:
    """A vocabulary of the ``tokenizers`` library."""

    name: str
    model: tokenizers.Tokenizer
    end_of_document: int
    settings: dict[str, Any]
    """Contents of ``tokenizer_config.json``: the chat template lives there."""

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id; ids of added tokens may leave gaps."""
        return 1 + max(self.model.get_vocab(with_added_tokens=True).values())

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the ``tokenizers`` form, the end-of-document id and the chat template."""
        content = [self.model.to_str(), self.end_of_document, self.settings.get("chat_template")]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[npt.NDArray[Any]]:
        """The tokens of each text, computed on all cores unless ``TOKENIZERS_PARALLELISM=false``."""
        self.model.encode_special_tokens = True
        encodings = self.model.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encode_located(self, text: str, *, special: bool) -> Located:
        """The tokens of ``text`` with the offsets of the ``tokenizers`` library."""
        self.model.encode_special_tokens = not special
        encoding = self.model.encode(text, add_special_tokens=False)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        return Located(tokens=np.array(encoding.ids, np.int32), starts=offsets[:, 0], ends=offsets[:, 1])

    def decode(self, tokens: npt.NDArray[Any]) -> str:
        """The text of ``tokens``, without special tokens."""
        return str(self.model.decode(tokens.tolist()))

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
        _save(self.model, str(self.model.id_to_token(self.end_of_document)), folder, self.settings)


def train_bpe(texts: Iterable[str], *, vocab_size: int) -> LearnedTokenizer:
    """A byte-level BPE of at most ``vocab_size`` tokens, the same for the same texts on any machine.

    Pre-tokenization is GPT-2's. A small text may have fewer pairs worth merging than asked for.

    Raises:
        DataError: ``vocab_size`` has no room for the 256 bytes and the end-of-document token.
    """
    from tokenizers import models, pre_tokenizers, trainers

    if vocab_size < _SMALLEST_BPE:
        raise DataError(
            f"a vocabulary of {vocab_size} tokens has no room for 256 bytes and the end of a document",
            keys=("model.vocab_size", "data.tokenizer"),
            code="data.vocabulary_too_small",
            allowed=f"at least {_SMALLEST_BPE}",
            suggestion="model.vocab_size=512",
        )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_DOCUMENT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    model = _byte_level(models.BPE())
    model.train_from_iterator(texts, trainer)
    return LearnedTokenizer(name="bpe", model=model, end_of_document=model.token_to_id(END_OF_DOCUMENT), settings={})


def load_tokenizer(folder: Path, *, name: str | None = None) -> LearnedTokenizer:
    """The tokenizer of a Hugging Face folder, called ``name``, or by the folder.

    ``tokenizer.json`` is read as it is; a folder without one is converted by transformers, where it can be.

    Raises:
        DataError: there is no tokenizer in the folder, or it names no end-of-document token.
    """
    from tokenizers import Tokenizer as Model

    path = folder / "tokenizer.json"
    if not folder.is_dir():
        raise DataError(
            f"there is no tokenizer folder {folder}",
            keys=("data.tokenizer",),
            code="data.missing",
            allowed="bytes, bpe, or a folder with a tokenizer.json",
        )
    try:
        model = Model.from_file(str(path)) if path.is_file() else _convert(folder)
    except Exception as error:  # tokenizers and transformers raise bare Exception, OSError, ValueError and more
        raise DataError(
            f"{folder} holds no readable tokenizer: {_first_line(error)}",
            keys=("data.tokenizer",),
            code="data.tokenizer_unreadable",
            allowed="bytes, bpe, or a folder with a tokenizer.json",
        ) from error
    settings = _settings(folder)
    return LearnedTokenizer(
        name=name or str(folder),
        model=model,
        end_of_document=_end_of_document(folder, model, settings),
        settings=settings,
    )


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer with more tokens than the model has embedding rows.

    Raises:
        DataError: with both numbers.
    """
    if tokenizer.vocab_size > vocab_size:
        raise DataError(
            f"tokenizer {tokenizer.name} has {tokenizer.vocab_size} tokens, the model {vocab_size} embedding rows",
            keys=("model.vocab_size", "data.tokenizer"),
            code="data.vocabulary",
            allowed=f"model.vocab_size of at least {tokenizer.vocab_size}",
            suggestion=f"model.vocab_size={tokenizer.vocab_size}",
        )


def _byte_level(model: Any) -> Any:
    from tokenizers import Tokenizer as Model
    from tokenizers import decoders, pre_tokenizers

    tokenizer = Model(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_letter(byte: int) -> str:
    """The printable letter that byte-level BPE writes for ``byte`` (GPT-2, encoder.py, ``bytes_to_unicode``)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in printable].index(byte))


def _save(model: Any, end_of_document: str, folder: Path, settings: dict[str, Any] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.save(str(folder / "tokenizer.json"))
    defaults = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end_of_document}
    (folder / "tokenizer_config.json").write_text(json.dumps(defaults | (settings or {}), indent=1), encoding="utf-8")


def _convert(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    template = folder / "chat_template.jinja"
    if template.is_file():
        settings["chat_template"] = template.read_text(encoding="utf-8")
    return settings


def _end_of_document(folder: Path, model: Any, settings: dict[str, Any]) -> int:
    """The end-of-sequence token the folder names, else one of the usual spellings."""
    named = settings.get("eos_token")
    content = named.get("content") if isinstance(named, dict) else named
    for spelling in (content, END_OF_DOCUMENT, "</s>", "<eos>"):
        token = model.token_to_id(spelling) if spelling else None
        if token is not None:
            return int(token)
    raise DataError(
        f"the tokenizer in {folder} names no end-of-document token",
        keys=("data.tokenizer",),
        code="data.no_end_of_document",
        allowed="an eos_token in tokenizer_config.json that is in the vocabulary",
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
