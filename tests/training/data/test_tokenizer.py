from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.training.data.demo import DEMO_TEXT
from launcher.training.data.errors import DataError
from launcher.training.data.tokenizer import ByteTokenizer, check_vocabulary, load_tokenizer, train_bpe

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.training.data.tokenizer import LearnedTokenizer

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@pytest.fixture(scope="module")
def bpe() -> LearnedTokenizer:
    return train_bpe([DEMO_TEXT.read_text(encoding="utf-8")], vocab_size=1024)


@given(text=UNICODE)
@settings(deadline=None)
def test_bytes_give_the_text_back(text: str) -> None:
    tokens = ByteTokenizer().encode([text])[0]
    assert tokens.tolist() == list(text.encode())
    assert ByteTokenizer().decode(tokens) == text


@given(text=UNICODE)
@settings(deadline=None)
def test_a_bpe_gives_any_text_back(bpe: LearnedTokenizer, text: str) -> None:
    assert bpe.decode(bpe.encode([text])[0]) == text


def test_a_bpe_has_the_size_asked_for_and_shortens_its_own_text(bpe: LearnedTokenizer) -> None:
    assert bpe.vocab_size == 1024
    text = DEMO_TEXT.read_text(encoding="utf-8")
    assert len(bpe.encode([text])[0]) < len(text) / 2


def test_a_bpe_is_the_same_on_any_number_of_cores() -> None:
    script = (
        "from launcher.training.data.tokenizer import train_bpe; from launcher.training.data.demo import DEMO_TEXT;"
        "print(train_bpe([DEMO_TEXT.read_text(encoding='utf-8')], vocab_size=600).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"RAYON_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "4")
    }
    assert len(digests) == 1


def test_a_bpe_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(DataError, match="vocabulary of 256 tokens has no room for 256 bytes and the end"):
        train_bpe(["text"], vocab_size=256)


def test_an_end_of_document_spelled_in_the_text_is_plain_text(bpe: LearnedTokenizer) -> None:
    assert bpe.end_of_document not in bpe.encode(["a<|endoftext|>b"])[0]
    assert bpe.end_of_document in bpe.encode_located("a<|endoftext|>b", special=True).tokens


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_a_saved_tokenizer_is_a_hugging_face_folder_with_the_same_ids(
    bpe: LearnedTokenizer, kind: str, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = ByteTokenizer() if kind == "bytes" else bpe
    tokenizer.save(tmp_path / "t")
    text = "Sir Walter Elliot, of Kellynch Hall — «été» \x00\n\n 漢字 🙂"
    ids = tokenizer.encode([text])[0].tolist()
    theirs = AutoTokenizer.from_pretrained(tmp_path / "t", local_files_only=True)
    assert theirs.encode(text, add_special_tokens=False) == ids
    assert theirs.eos_token_id == tokenizer.end_of_document
    assert load_tokenizer(tmp_path / "t").encode([text])[0].tolist() == ids
    assert load_tokenizer(tmp_path / "t").end_of_document == tokenizer.end_of_document


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_located_tokens_know_their_characters(bpe: LearnedTokenizer, kind: str) -> None:
    tokenizer = ByteTokenizer() if kind == "bytes" else bpe
    located = tokenizer.encode_located("é12", special=False)
    assert located.tokens.tolist() == tokenizer.encode(["é12"])[0].tolist()
    assert (int(located.starts[0]), int(located.ends[0])) == (0, 1)
    assert (int(located.starts[-1]), int(located.ends[-1])) == (2, 3)


def test_a_vocabulary_larger_than_the_models_is_refused_with_both_numbers() -> None:
    with pytest.raises(DataError, match="tokenizer bytes has 257 tokens, the model 256 embedding rows") as caught:
        check_vocabulary(ByteTokenizer(), 256)
    assert caught.value.faults[0].suggestion == "model.vocab_size=257"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="holds no readable tokenizer"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_an_end_of_document_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="names no end-of-document token"):
        load_tokenizer(tmp_path)


def test_half_a_character_decodes_to_the_replacement_character() -> None:
    assert ByteTokenizer().decode(np.array([0xC3, 256])) == "�"
