"""Everyone else's words for our keys."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.recipe.aliases import ALIASES, canonicalize, find_alias, meant_keys
from launcher.recipe.fields import annotation_at, every_key


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("parallelism.tensor_model_parallel_size", "parallelism.tensor_parallel_size"),  # Megatron-LM
        ("model.tensor_model_parallel_size", "parallelism.tensor_parallel_size"),  # NeMo puts it under model
        ("tp", "parallelism.tensor_parallel_size"),
        ("parallelism.pp", "parallelism.pipeline_parallel_size"),
        ("parallelism.cp_size", "parallelism.context_parallel_size"),  # accelerate
        ("parallelism.expert_model_parallel_size", "parallelism.expert_parallel_size"),
        ("trainer.num_nodes", "cluster.instance_count"),  # Lightning
        ("cluster.sku", "cluster.instance_type"),
        ("trainer.max_steps", "training.train_steps"),
        ("train_iters", "training.train_steps"),  # Megatron-LM
        ("training.seq_len", "training.seq_length"),
        ("lr", "training.optimizer.learning_rate"),
        ("train_batch_size", "training.global_batch_size"),  # DeepSpeed
        ("zero_optimization.stage", "parallelism.zero_stage"),  # DeepSpeed
        ("model.num_layers", "model.num_hidden_layers"),
        ("model.ffn_hidden_size", "model.intermediate_size"),
        ("model.num_query_groups", "model.num_key_value_heads"),
        ("model.rms_norm_eps", "model.norm_eps"),  # Hugging Face config.json
    ],
)
def test_a_foreign_word_is_known_wherever_its_source_puts_it(written: str, key: str) -> None:
    alias = find_alias(written)

    assert alias is not None
    assert alias.key == key


def test_every_alias_leads_to_a_key_and_is_none_itself() -> None:
    assert [word for word, alias in ALIASES.items() if annotation_at(alias.key) is None] == []
    last_words = {key.rsplit(".", 1)[-1] for key in every_key()}
    assert {word for word in ALIASES if word in last_words} == set()


def test_a_variable_of_the_users_own_is_never_an_alias() -> None:
    assert find_alias("environment.variables.tp") is None
    assert find_alias("parallelism.deepspeed.train_batch_size") is None


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ({"gradient_checkpointing": True}, {"activation_checkpointing": "full"}),
        ({"gradient_checkpointing": False}, {"activation_checkpointing": "none"}),
        ({"recompute_granularity": "selective"}, {"activation_checkpointing": "selective"}),
        ({"bf16": True}, {"precision": "bf16"}),
        ({"optimizer": {"lr": 1e-4}, "seed": 1}, {"optimizer": {"learning_rate": 1e-4}, "seed": 1}),
        ({"lr": 1e-4}, {"optimizer": {"learning_rate": 1e-4}}),
    ],
)
def test_a_section_is_put_into_our_words(said: dict[str, Any], ours: dict[str, Any]) -> None:
    content, renamed, faults = canonicalize(said, "training")

    assert content == ours
    assert len(renamed) == 1
    assert faults == []


def test_a_foreign_section_is_emptied_into_ours() -> None:
    content, _, faults = canonicalize({"trainer": {"num_nodes": 4, "max_steps": 10}}, "")

    assert content == {"cluster": {"instance_count": 4}, "training": {"train_steps": 10}}
    assert faults == []


def test_a_word_that_belongs_to_another_section_stays_where_it_is() -> None:
    # A file of the group model cannot set a key of parallelism; the decoder then names the key that was meant.
    content, renamed, _ = canonicalize({"tp": 8}, "model")

    assert content == {"tp": 8}
    assert renamed == []
    assert meant_keys("model.tp", most=1) == ("parallelism.tensor_parallel_size",)


@pytest.mark.parametrize(
    "said",
    [
        {"parallelism": {"tp": 2, "tensor_parallel_size": 4}},
        {"parallelism": {"tp": 2, "tensor_model_parallel_size": 2}},
    ],
)
def test_one_key_said_in_two_words_is_a_fault(said: dict[str, Any]) -> None:
    _, _, faults = canonicalize(said, "")

    assert [fault.suggestion for fault in faults] == ["keep parallelism.tensor_parallel_size"]
    assert "parallelism.tp" in faults[0].what
    assert "both set parallelism.tensor_parallel_size" in faults[0].what


def test_a_value_without_equivalent_is_a_fault() -> None:
    _, _, faults = canonicalize({"training": {"bf16": False}}, "")

    assert [fault.what for fault in faults] == ["training.bf16: false has no equivalent; write training.precision"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("cluster.node", "cluster.instance_count"),
        ("seed", "training.seed"),
        ("training.tran_steps", "training.train_steps"),
        ("modle.hidden_size", "model.hidden_size"),
        ("zero_stge", "parallelism.zero_stage"),
        ("training.learning_rate", "training.optimizer.learning_rate"),
    ],
)
def test_the_key_that_was_meant_is_named(typed: str, meant: str) -> None:
    assert meant_keys(typed, most=1) == (meant,)
