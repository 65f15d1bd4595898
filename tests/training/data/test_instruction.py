from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from launcher.training.data.corpus import open_corpora
from launcher.training.data.demo import DEMO_TEXT
from launcher.training.data.errors import DataError
from launcher.training.data.tokenizer import train_bpe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from launcher.recipe.schema import Recipe

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""OpenAI's ChatML, as Qwen and others ship it."""

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who wrote Persuasion?"},
    {"role": "assistant", "content": "Jane Austen."},
    {"role": "user", "content": "When?"},
    {"role": "assistant", "content": "1817 or so."},
]


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    tokenizer = train_bpe([DEMO_TEXT.read_text(encoding="utf-8")], vocab_size=500)
    tokenizer.model.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": CHATML}))
    return folder


@pytest.fixture
def instructions(make_recipe: Callable[..., Recipe], write_lines: Any, tmp_path: Path) -> Callable[..., Any]:
    """The one sequence that ``records`` fill, whole."""

    def read(records: Sequence[dict[str, Any]], **changes: Any) -> Any:
        path = write_lines(tmp_path / "talk.jsonl", records)
        recipe = make_recipe(
            **{
                "train": (str(path),),
                "format": "instruction",
                "packing": "whole_documents",
                "reset_at_documents": True,
                "validation_fraction": 0,
                "seq_length": 200,
            }
            | changes
        )
        return open_corpora(recipe, cache=tmp_path / "cache").train.read([0])

    return read


def test_only_the_completion_and_the_end_are_learnt(instructions: Callable[..., Any]) -> None:
    batch = instructions([{"prompt": "2+2=", "completion": "4é"}])
    # 4 bytes of prompt, then "4", the two bytes of "é" and the end of the document (256); labels stand one earlier.
    assert batch.tokens[0, :8].tolist() == [*"2+2=4é".encode(), 256]
    assert batch.labels[0, :8].tolist() == [-100, -100, -100, *"4é".encode(), 256, -100]
    assert (batch.labels[0, 8:] == -100).all()


def test_two_examples_in_one_sequence_keep_their_masks(instructions: Callable[..., Any]) -> None:
    batch = instructions([{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}])
    assert batch.tokens[0, :6].tolist() == [*b"ab", 256, *b"cd", 256]
    assert batch.labels[0, :6].tolist() == [98, 256, -100, 100, 256, -100]
    assert batch.positions[0, :6].tolist() == [0, 1, 2, 0, 1, 2]


def test_a_conversation_is_laid_out_as_transformers_does_it(
    instructions: Callable[..., Any], chat_folder: Path
) -> None:
    from transformers import AutoTokenizer

    batch = instructions([{"messages": TALK}], tokenizer=str(chat_folder), vocab_size=502)
    theirs = AutoTokenizer.from_pretrained(chat_folder, local_files_only=True)
    expected = theirs.apply_chat_template(TALK, tokenize=True, return_dict=False)
    assert batch.tokens[0, : len(expected) + 1].tolist() == [*expected, theirs.eos_token_id]


def test_what_the_assistant_says_is_learnt_and_nothing_else(
    instructions: Callable[..., Any], chat_folder: Path
) -> None:
    from transformers import AutoTokenizer

    batch = instructions([{"messages": TALK}], tokenizer=str(chat_folder), vocab_size=502)
    learnt = batch.labels[0][batch.labels[0] >= 0]
    theirs = AutoTokenizer.from_pretrained(chat_folder, local_files_only=True)
    assert theirs.decode(learnt) == "Jane Austen.<|im_end|>\n1817 or so.<|im_end|>\n<|endoftext|>"


def test_a_corpus_of_text_beside_instructions_is_learnt_whole(
    make_recipe: Callable[..., Recipe], write_lines: Any, tmp_path: Path
) -> None:
    from launcher.training.data.prepare import prepare

    (tmp_path / "a.txt").write_text("x" * 40)
    prepare([tmp_path / "a.txt"], tmp_path / "text")
    path = write_lines(tmp_path / "b.jsonl", [{"prompt": "p" * 20, "completion": "c" * 20}])
    recipe = make_recipe(
        train=(str(tmp_path / "text"), str(path)), format="instruction", seq_length=40, validation_fraction=0
    )
    train = open_corpora(recipe, cache=tmp_path / "cache").train
    batch = train.read(range(2))
    by_first = {int(row[0]): labels for row, labels in zip(batch.tokens, batch.labels, strict=True)}
    assert by_first[ord("x")].tolist() == [*b"x" * 39, 256]
    assert by_first[ord("p")].tolist() == [-100] * 19 + [*b"c" * 20, 256]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "x"}, r"talk\.jsonl:1 is no instruction: it has text"),
        ({"prompt": "x", "completion": 1}, r"talk\.jsonl:1 is no instruction: it has prompt, completion"),
        ({"messages": TALK}, "tokenizer bytes has no chat template"),
    ],
)
def test_what_is_no_instruction_is_refused(
    instructions: Callable[..., Any], record: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        instructions([record])


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (TALK[:2], r"talk\.jsonl:1 holds no message that the assistant replies to"),
        (["hello"], r"talk\.jsonl:1: the chat template refuses the messages"),
        (TALK[2:], r"talk\.jsonl:1 holds no message that the assistant replies to"),
    ],
)
def test_a_conversation_without_a_reply_is_refused(
    instructions: Callable[..., Any], chat_folder: Path, messages: list[Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        instructions([{"messages": messages}], tokenizer=str(chat_folder), vocab_size=502)


def test_a_template_that_refuses_the_roles_is_told_with_its_words(
    instructions: Callable[..., Any], chat_folder: Path, tmp_path: Path
) -> None:
    strict = tmp_path / "strict"
    strict.mkdir()
    (strict / "tokenizer.json").write_bytes((chat_folder / "tokenizer.json").read_bytes())
    template = "{{ raise_exception('roles must alternate') }}"
    settings = {"eos_token": "<|endoftext|>", "chat_template": template}
    (strict / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(DataError, match=r"talk\.jsonl:1: the chat template refuses the messages: roles must alternate"):
        instructions([{"messages": TALK}], tokenizer=str(strict), vocab_size=502)


def test_the_mask_survives_the_cache(instructions: Callable[..., Any]) -> None:
    record = [{"prompt": "a", "completion": "b"}]
    assert np.array_equal(instructions(record).labels, instructions(record).labels)


def test_a_pattern_takes_the_marks_of_what_is_learnt_for_no_corpus(
    make_recipe: Callable[..., Recipe], write_lines: Any, tmp_path: Path
) -> None:
    from launcher.training.data.prepare import prepare

    path = write_lines(tmp_path / "a.jsonl", [{"prompt": "p" * 20, "completion": "c" * 20}])
    prepare([path], tmp_path / "shard", format="instruction")
    recipe = make_recipe(train=(str(tmp_path / "shard*.idx"),), seq_length=40, validation_fraction=0)
    train = open_corpora(recipe, cache=tmp_path / "cache").train
    assert len(train.corpora[0]) == 1
    assert train.read([0]).labels[0].tolist() == [-100] * 19 + [*b"c" * 20, 256]
