"""The gate of a recipe: what passes, what is refused, and in which words."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import RecipeError
from launcher.recipe.codec import decode, digest, encode
from launcher.recipe.fields import every_key
from tests.recipe.recipes import small_recipe, with_key


def test_a_recipe_survives_json() -> None:
    recipe = decode(with_key("environment.variables", {"NCCL_DEBUG": "INFO"}))

    assert decode(json.loads(json.dumps(encode(recipe)))) == recipe


def test_defaults_fill_what_is_not_said() -> None:
    recipe = decode(small_recipe())

    assert recipe.training.optimizer.beta2 == 0.95
    assert recipe.cluster.instance_count == 1


def test_every_key_is_in_the_encoded_recipe() -> None:
    encoded = encode(decode(small_recipe()))

    assert [key for key in every_key() if not _has(encoded, key)] == []


def _has(data: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


def test_the_digest_is_64_hex_digits_and_changes_with_any_key() -> None:
    one, other = decode(small_recipe()), decode(with_key("training.seed", 1))

    assert len(digest(one)) == 64
    assert int(digest(one), 16) >= 0
    assert digest(one) == digest(decode(small_recipe()))
    assert digest(one) != digest(other)


def test_the_digest_does_not_depend_on_how_a_number_is_written() -> None:
    assert digest(decode(with_key("training.train_tokens", 1e12))) == digest(
        decode(with_key("training.train_tokens", 1_000_000_000_000))
    )


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        ("training.train_tokens", 1e12, 10**12),  # 1e12 tokens is how people write it
        ("training.optimizer.learning_rate", 1, 1.0),
        ("training.train_steps", None, None),
        ("data.train", ["a", "b"], ("a", "b")),
        ("parallelism.zero_stage", 3, 3),
        ("cluster.services", ["ssh"], ("ssh",)),
        ("parallelism.deepspeed", {"a": {"b": [1, None, 0.5]}}, {"a": {"b": [1, None, 0.5]}}),
    ],
)
def test_plain_values_become_typed_ones(key: str, written: Any, read: Any) -> None:
    value: Any = decode(with_key(key, written))
    for name in key.split("."):
        value = getattr(value, name)

    assert value == read
    assert type(value) is type(read)


def test_environment_variables_are_texts_as_a_shell_writes_them() -> None:
    # Case A07: true -> "true" (never "True"), 8 -> "8", 1.0e-4 -> "0.0001", null takes the variable out.
    variables = {"RSLEX_DIRECT_VOLUME_MOUNT": True, "OMP_NUM_THREADS": 8, "LR": 1.0e-4, "EMPTY": None, "Case": "x"}

    assert decode(with_key("environment.variables", variables)).environment.variables == {
        "RSLEX_DIRECT_VOLUME_MOUNT": "true",
        "OMP_NUM_THREADS": "8",
        "LR": "0.0001",
        "Case": "x",
    }


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("training.seq_length", True, "training.seq_length is true"),  # a truth value is no number
        ("training.seq_length", 1.5, "training.seq_length is 1.5"),
        ("training.seq_length", "128", "training.seq_length is '128'"),
        ("training.seq_length", None, "training.seq_length is null"),
        ("training.train_tokens", 1e300, "training.train_tokens is 1e+300"),
        ("training.seed", 2**63, "training.seed is a number too large"),  # MLflow and JSON readers hold 64 bits
        ("training.seed", -1, "training.seed is -1"),
        ("training.optimizer.learning_rate", math.nan, "training.optimizer.learning_rate is nan"),
        ("training.optimizer.learning_rate", math.inf, "training.optimizer.learning_rate is inf"),
        ("training.optimizer.learning_rate", 0, "training.optimizer.learning_rate is 0"),  # the limit itself is out
        ("model.dropout", 0.95, "model.dropout is 0.95"),
        ("training.compile", 1, "training.compile is 1"),
        ("training.compile", "yes", "training.compile is 'yes'"),
        ("name", 13, "name is 13"),
        ("name", "a\0b", "name is 'a\\x00b'"),
        ("parallelism.zero_stage", True, "parallelism.zero_stage is true"),  # not stage 1
        ("parallelism.zero_stage", 4, "parallelism.zero_stage is 4"),
        ("data.train", "demo", "data.train is 'demo'"),
        ("data.train_weights", [1, "x"], "data.train_weights[1] is 'x'"),
        ("environment.variables", ["A=1"], "environment.variables is ['A=1']"),
        ("environment.variables", {"A": [1]}, "environment.variables.A is [1]"),
        ("parallelism.deepspeed", {"a": math.inf}, "parallelism.deepspeed.a is inf"),
        ("environment.variables", {"HF_TOKEN": ["hf_x"]}, "environment.variables.HF_TOKEN is ['[REDACTED]']"),
        ("checkpoint", 100, "checkpoint must be a section of keys, not 100"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(key: str, value: Any, words: str) -> None:
    with pytest.raises(RecipeError) as refused:
        decode(with_key(key, value))

    assert [fault.what for fault in refused.value.faults] == [words]


def test_a_number_no_text_can_hold_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"training.seed is a number too large"):
        decode(with_key("training.seed", 10**5000))


def test_all_faults_are_told_at_once() -> None:
    recipe = small_recipe()
    del recipe["model"]["vocab_size"]
    recipe["training"]["seq_lenght"] = 128
    recipe["training"]["precision"] = "bf61"
    recipe["cluster"] = {"node": 4}

    with pytest.raises(RecipeError) as refused:
        decode(recipe)

    assert [(fault.what, fault.suggestion) for fault in refused.value.faults] == [
        ("model.vocab_size is missing", None),
        ("unknown key training.seq_lenght", "did you mean training.seq_length?"),
        ("training.precision is 'bf61'", "training.precision=bf16"),
        ("unknown key cluster.node", "did you mean cluster.instance_count?"),
    ]


def test_what_is_allowed_is_said() -> None:
    with pytest.raises(RecipeError) as refused:
        decode(with_key("cluster.instance_count", 0))

    assert refused.value.faults[0].allowed == "at least 1, at most 100000"


def test_a_redacted_secret_is_refused_naming_each_key() -> None:
    # Case M08: a shared recipe holds [REDACTED] where a secret stood.
    variables = {"HF_TOKEN": "[REDACTED]", "URL": "https://[REDACTED]@example.com", "PLAIN": "x"}
    recipe = with_key("environment.variables", variables)
    recipe["parallelism"] = {"deepspeed": {"comet": {"api_key": "[REDACTED]"}}}

    with pytest.raises(RecipeError) as refused:
        decode(recipe)

    assert {fault.keys[0] for fault in refused.value.faults} == {
        "environment.variables.HF_TOKEN",
        "environment.variables.URL",
        "parallelism.deepspeed.comet.api_key",
    }


def test_free_values_may_not_nest_without_end() -> None:
    nested: Any = 1
    for _ in range(5000):
        nested = [nested]

    with pytest.raises(RecipeError, match="nests more than 64 levels deep"):
        decode(with_key("parallelism.deepspeed", {"a": nested}))


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_keys = st.sampled_from(every_key()) | st.sampled_from(["model", "training.optimizer", "cluster", "nowhere.at.all"])


@given(changes=st.dictionaries(_keys, _anything, min_size=1, max_size=4), dropped=st.sets(_keys, max_size=2))
def test_a_changed_recipe_is_read_or_refused_with_words(changes: dict[str, Any], dropped: set[str]) -> None:
    data = copy.deepcopy(_FULL)
    for key in dropped:
        _drop(data, key)
    for key, value in changes.items():
        _set(data, key, value)

    try:
        recipe = decode(data)
    except RecipeError as refused:
        assert refused.faults  # either outcome is right
        assert all(fault.what and "\n" not in fault.what for fault in refused.faults)
    else:
        assert decode(json.loads(json.dumps(encode(recipe)))) == recipe


def test_a_key_that_would_break_a_line_is_shown_escaped() -> None:
    data = copy.deepcopy(_FULL)
    data["model"]["\n"] = 1
    data["environment"]["variables"] = {"A\nB": {}}

    with pytest.raises(RecipeError) as refused:
        decode(data)

    faults = "".join(fault.what for fault in refused.value.faults)
    assert "unknown key model.'\\n'" in faults
    assert "environment.variables.'A\\nB'" in faults


_FULL = encode(decode(small_recipe()))


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *above, last = key.split(".")
    for name in above:
        inner = data.get(name)
        inner = inner if isinstance(inner, dict) else {}
        data[name] = inner
        data = inner
    data[last] = value


def _drop(data: dict[str, Any], key: str) -> None:
    *above, last = key.split(".")
    for name in above:
        data = data.get(name, {}) if isinstance(data, dict) else {}
    if isinstance(data, dict):
        data.pop(last, None)
