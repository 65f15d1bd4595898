"""Keys as a person looks them up, and the promise that none disappears."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.recipe.codec import decode, encode
from launcher.recipe.keys import all_keys, find_key, section_meaning, tag_of
from tests.recipe.recipes import small_recipe


def test_the_keys_are_those_that_recipes_out_there_use() -> None:
    # A key that is renamed, retagged or removed breaks other people's recipes; new ones are added to the file.
    promised = (Path(__file__).parent / "keys.txt").read_text(encoding="utf-8").splitlines()

    assert [f"{key.path} {key.tag} {key.type}" for key in all_keys()] == promised


def test_every_key_has_a_meaning() -> None:
    assert [key.path for key in all_keys() if not key.meaning.endswith(".")] == []


def test_a_key_tells_what_it_accepts() -> None:
    key = find_key("parallelism.zero_stage")

    assert key is not None
    assert (key.type, key.choices, key.default, key.tag) == ("choice", ("0", "1", "2", "3"), 0, "mapping")
    assert key.meaning.startswith("What is sharded over data-parallel ranks")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("cluster.instance_count", "a whole number (at least 1, at most 100000)"),
        ("training.optimizer.learning_rate", "a number (above 0)"),
        ("training.train_steps", "a whole number, or null (at least 1)"),
        ("data.train", "a list of texts"),
        ("environment.variables", "a mapping"),
        ("cluster.tier", "dedicated, spot"),
        ("training.compile", "true or false"),
    ],
)
def test_what_is_allowed_includes_the_limits(path: str, allowed: str) -> None:
    key = find_key(path)

    assert key is not None
    assert key.allowed == allowed


def test_required_keys_are_those_without_which_nothing_can_be_planned() -> None:
    assert [key.path for key in all_keys() if key.is_required] == [
        "model.hidden_size",
        "model.num_hidden_layers",
        "model.num_attention_heads",
        "model.vocab_size",
        "training.seq_length",
        "training.global_batch_size",
    ]


def test_the_default_of_a_key_is_what_a_recipe_gets() -> None:
    encoded = encode(decode(small_recipe()))
    for key in all_keys():
        value = encoded
        for name in key.path.split("."):
            value = value[name]
        assert key.is_required or value == key.default, key.path


def test_a_key_of_the_users_own_has_the_tag_of_its_mapping() -> None:
    assert tag_of("environment.variables.NCCL_DEBUG") == "runtime"
    with pytest.raises(KeyError):
        tag_of("nowhere")


def test_a_section_has_a_meaning_too() -> None:
    assert section_meaning("training.optimizer") == "AdamW (Loshchilov and Hutter, arXiv:1711.05101)."
    assert section_meaning("training.seed") is None
