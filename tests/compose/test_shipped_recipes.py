"""Every shipped recipe composes, and every shipped model has the published shape."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
import yaml

from launcher.catalog import vm_sizes
from launcher.compose import library
from launcher.compose.composer import compose
from launcher.plan.planner import make_plan
from launcher.recipe.codec import decode, encode

if TYPE_CHECKING:
    from launcher.recipe.schema import Model

ROOT = library.shipped_root()
composed_once = functools.cache(lambda word: compose([word]))
CHOICES = [(group, choice.name) for group in library.groups([ROOT]) for choice in library.group_choices(group)]


@pytest.mark.parametrize("name", library.recipe_names())
def test_a_shipped_recipe_composes_without_a_word_to_the_user(name: str) -> None:
    composed = composed_once(name)

    assert composed.recipe.name == name
    assert composed.recipe.description
    assert composed.notes == ()
    assert decode(encode(composed.recipe)) == composed.recipe


@pytest.mark.parametrize(("group", "name"), [choice for choice in CHOICES if choice[0] != "recipe"])
def test_every_choice_composes_with_the_small_recipe(group: str, name: str) -> None:
    assert composed_once(f"{group}={name}").choices[group] == name


@pytest.mark.parametrize("name", library.recipe_names())
def test_a_recipe_chooses_cluster_and_layout_but_sets_no_key_of_theirs(name: str) -> None:
    # A key set by the recipe would stay when the user chooses another cluster: eight "nodes" of a laptop.
    said = yaml.safe_load((ROOT / "recipe" / f"{name}.yaml").read_text(encoding="utf-8"))

    assert {"cluster", "parallelism", "model", "environment"} & said.keys() == set()


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_says_what_it_is(group: str, name: str) -> None:
    (choice,) = [choice for choice in library.group_choices(group) if choice.name == name]

    assert 0 < len(choice.description) <= 160


@pytest.mark.parametrize("name", library.choice_names("cluster", [ROOT]))
def test_a_cluster_is_a_known_vm_size_and_names_its_environment(name: str) -> None:
    recipe = composed_once(f"cluster={name}").recipe
    size = vm_sizes.find(recipe.cluster.instance_type)

    assert (ROOT.parent / "environments" / recipe.environment.name).is_dir() or recipe.environment.image
    assert (recipe.environment.name == "cuda_arm64") == (size.architecture == "aarch64")


def test_every_current_training_size_has_a_cluster() -> None:
    shipped = {
        composed_once(f"cluster={name}").recipe.cluster.instance_type
        for name in library.choice_names("cluster", [ROOT])
    }
    whole = {size.name for size in vm_sizes.VM_SIZES if size.status != "retired" and size.gpu_fraction == 1}

    assert whole - shipped == set()


# Hugging Face: parameters of the published checkpoint (safetensors metadata of the model's page).
PUBLISHED = {
    "gpt/125m": 124_439_808,
    "gpt/350m": 354_823_168,
    "gpt/774m": 774_030_080,
    "gpt/1.5b": 1_557_611_200,
    "llama2/7b": 6_738_415_616,
    "llama2/13b": 13_015_864_320,
    "llama2/70b": 68_976_648_192,
    "llama3/8b": 8_030_261_248,
    "llama3/70b": 70_553_706_496,
    "llama3/405b": 405_853_388_800,
    "qwen3/8b": 8_190_735_360,
    "qwen3/32b": 32_762_123_264,
    "mixtral/8x7b": 46_702_792_704,
    "mixtral/8x22b": 140_620_634_112,
}
# Papers: as many digits as they print.
PRINTED = {
    "gpt/1.3b": 1.3e9,
    "gpt/6.7b": 6.7e9,
    "gpt/13b": 13e9,
    "gpt/175b": 175e9,
    "gpt/1t": 1008e9,  # arXiv:2104.04473, table 1
    "turing/17b": 17e9,
    "mtnlg/530b": 530e9,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_a_model_has_exactly_the_published_parameters(name: str, parameters: int) -> None:
    assert _parameters(composed_once(f"model={name}").recipe.model) == parameters


@pytest.mark.parametrize(("name", "parameters"), PRINTED.items())
def test_a_model_has_the_parameters_its_paper_prints(name: str, parameters: float) -> None:
    assert _parameters(composed_once(f"model={name}").recipe.model) == pytest.approx(parameters, rel=0.02)


@pytest.mark.parametrize("name", ["gpt/tiny", "llama/tiny"])
def test_the_small_models_are_small(name: str) -> None:
    assert 2e6 < _parameters(composed_once(f"model={name}").recipe.model) < 5e6


def test_every_model_is_checked() -> None:
    names = set(library.choice_names("model", [ROOT]))

    assert names == PUBLISHED.keys() | PRINTED.keys() | {"gpt/tiny", "llama/tiny"}


def test_every_model_file_names_its_source() -> None:
    for path in (ROOT / "model").rglob("*.yaml"):
        comment = path.read_text(encoding="utf-8").split("model_type:")[0]
        assert any(word in comment for word in ("arXiv:", "Hugging Face", "our own shape")), path


def _parameters(model: Model) -> int:
    """Counted from the architecture's definition, in no words of ours: embeddings, blocks, final norm, head."""
    width, heads = model.hidden_size, model.num_attention_heads
    if model.model_type == "gpt2":
        # Biases and two parameters a norm: 12 h^2 + 13 h a layer (arXiv:2104.04473, equation 2).
        layers = model.num_hidden_layers * (12 * width**2 + 13 * width)
        return layers + (model.vocab_size + model.max_position_embeddings) * width + 2 * width
    head = model.head_dim or width // heads
    keys = (model.num_key_value_heads or heads) * head
    attention = 2 * width * heads * head + 2 * width * keys + (2 * head if model.model_type == "qwen3" else 0)
    feed_forward = 3 * width * (model.intermediate_size or 4 * width)  # gate, up, down
    if model.num_local_experts:
        feed_forward = model.num_local_experts * feed_forward + width * model.num_local_experts  # and the router
    embeddings = model.vocab_size * width * (1 if model.tie_word_embeddings else 2)
    return embeddings + model.num_hidden_layers * (attention + feed_forward + 2 * width) + width


@pytest.mark.parametrize("name", library.recipe_names())
def test_a_shipped_recipe_can_be_submitted_as_it_is(name: str) -> None:
    plan = make_plan(composed_once(name).recipe)

    assert [finding.message for finding in plan.errors] == []
    assert plan.memory.verdict in ("fits", "unknown")  # unknown: a CPU's memory is this machine's


def test_the_small_recipes_train_for_about_a_minute() -> None:
    for name in ("gpt/tiny", "llama/tiny"):
        training = composed_once(name).recipe.training
        tokens = training.global_batch_size * training.seq_length * (training.train_steps or 0)
        # 6 FLOPs a parameter and token, 3 M parameters, 0.15 TFLOP/s on two cores (measured): 49 s.
        assert 6 * 3e6 * tokens / 0.15e12 < 60
