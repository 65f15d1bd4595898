"""What ``launcher recipes`` lists, finds and shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.compose.library import recipe_names

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

MODEL = """\
model_type: gpt2
hidden_size: 64
num_hidden_layers: 3
num_attention_heads: 4
vocab_size: 512
max_position_embeddings: 128
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A folder with a good recipe, and one that cannot be composed."""
    folder = tmp_path / "recipe" / "ours"
    folder.mkdir(parents=True)
    (folder / "good.yaml").write_text("defaults:\n- override /model: small\nname: good\ndescription: A team recipe\n")
    (folder / "bad.yaml").write_text("description: A team recipe that is wrong\nmodel:\n  hidden_sizes: 4\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "small.yaml").write_text(MODEL)
    return tmp_path


def test_recipes_are_found_by_words_of_name_and_description(cli: Cli, team: Path) -> None:
    found = cli("recipes", "team", "RECIPE", "--recipes", team, "--json").document["recipes"]

    assert [entry["name"] for entry in found] == ["ours/bad", "ours/good"]


def test_a_recipe_is_listed_with_its_size_ranks_and_memory(cli: Cli, team: Path) -> None:
    (entry,) = cli("recipes", "ours/good", "--recipes", team, "--json").document["recipes"]

    # GPT-2's layout: (vocabulary + positions) x h + 3 layers x (12 h^2 + 13 h) + final norm 2 h, h = 64, tied:
    # 640 x 64 + 3 x (49,152 + 832) + 128
    assert entry["parameters"] == 191_040
    assert entry["world_size"] == 2
    assert entry["memory_bytes_per_gpu"] > 16 * entry["parameters"]
    assert entry["refused"] is None


def test_a_recipe_that_cannot_be_composed_is_listed_with_the_reason(cli: Cli, team: Path) -> None:
    (entry,) = cli("recipes", "ours/bad", "--recipes", team, "--json").document["recipes"]

    assert entry["parameters"] is None
    assert entry["refused"] == "unknown key model.hidden_sizes"
    assert "ours/bad" in cli("recipes", "ours/bad", "--recipes", team).out


def test_every_shipped_recipe_is_listed(cli: Cli) -> None:
    outcome = cli("recipes", "--json")

    assert [entry["name"] for entry in outcome.document["recipes"]] == list(recipe_names())
    assert [entry["name"] for entry in outcome.document["recipes"] if entry["parameters"] is None] == []


def test_a_group_lists_its_choices(cli: Cli) -> None:
    outcome = cli("recipes", "cluster", "h100")

    assert outcome.code == 0
    assert "nd_h100_v5" in outcome.out
    assert "local_cpu" not in outcome.out


def test_no_match_names_what_is_near(cli: Cli) -> None:
    outcome = cli("recipes", "gpt/tinny")

    assert outcome.code == 2
    assert "no recipe matches gpt/tinny" in outcome.err
    assert "try      gpt/tiny" in outcome.err


def test_a_recipe_is_shown_key_by_key_with_its_origins(cli: Cli) -> None:
    lines = cli("recipes", "show", "gpt/tiny", "training.seed=7").out.splitlines()

    (seed,) = [line for line in lines if "training.seed" in line]
    (width,) = [line for line in lines if "model.hidden_size" in line]
    assert seed.split(maxsplit=2) == ["command", "line", "training.seed = 7"]
    assert width.startswith("recipes/model/gpt/tiny.yaml:")
    assert width.endswith("model.hidden_size = 256")


def test_show_wants_a_name(cli: Cli) -> None:
    assert cli("recipes", "show").code == 2
