"""What a person reads when a recipe is wrong: every fault, each with what, where, allowed and try."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import assert_golden

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

FIVE_FAULTS = """\
name: five-faults
model:
  hidden_size: wide
  num_hidden_layers: 0
training:
  precision: bf17
  seq_lenght: 2048
parallelism:
  zero_stage: 4
"""
"""Line 3: text for a number; 4: below the limit; 6: no such choice; 7: no such key; 9: no such stage."""


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """A team's folder with one wrong recipe in it."""
    folder = tmp_path / "team"
    (folder / "recipe").mkdir(parents=True)
    (folder / "recipe" / "wrong.yaml").write_text(FIVE_FAULTS)
    return folder


@pytest.mark.parametrize("verb", ["plan", "submit"])
def test_five_faults_are_told_at_once_each_with_its_line(verb: str, cli: Cli, recipes: Path) -> None:
    outcome = cli(verb, "wrong", "--recipes", recipes)

    assert outcome.code == 3
    assert outcome.out == ""
    assert_golden(outcome.err, "five_faults.txt")


def test_five_faults_in_json(cli: Cli, recipes: Path) -> None:
    outcome = cli("plan", "wrong", "--recipes", recipes, "--json")

    assert outcome.code == 3
    faults = outcome.document["error"]["faults"]
    assert {fault["keys"][0]: fault["where"] for fault in faults} == {
        "model.hidden_size": "team/recipe/wrong.yaml:3",
        "model.num_hidden_layers": "team/recipe/wrong.yaml:4",
        "training.precision": "team/recipe/wrong.yaml:6",
        "training.seq_lenght": "team/recipe/wrong.yaml:7",
        "parallelism.zero_stage": "team/recipe/wrong.yaml:9",
    }


def test_a_plan_that_cannot_be_made_names_every_key_and_where_it_was_set(cli: Cli) -> None:
    outcome = cli("plan", "gpt/13b", "cluster=nd_h100_v5", "parallelism=ddp", "parallelism.tensor_parallel_size=6")

    assert outcome.code == 3
    assert "error: 6-way tensor parallelism does not divide 40 attention heads" in outcome.err
    assert "parallelism.tensor_parallel_size = 6    command line\n" in outcome.err
    assert "model.num_attention_heads = 40          recipes/model/gpt/13b.yaml:" in outcome.err
    assert outcome.err.endswith("faults. Nothing was submitted.\n")


def test_the_place_of_every_key_is_in_the_json_too(cli: Cli) -> None:
    outcome = cli("plan", "gpt/13b", "cluster=nd_h100_v5", "parallelism.tensor_parallel_size=6", "--json")

    (fault,) = [each for each in outcome.document["error"]["faults"] if each["code"] == "plan.tensor_heads"]
    assert fault["keys"] == ["parallelism.tensor_parallel_size", "model.num_attention_heads"]
    command_line, file = fault["where"].split("; ")
    assert command_line == "command line"
    assert file.startswith("recipes/model/gpt/13b.yaml:")


def test_an_unknown_recipe_gets_its_near_misses(cli: Cli) -> None:
    outcome = cli("plan", "gpt/tinny")

    assert outcome.code == 3
    assert "there is no recipe gpt/tinny" in outcome.err
    assert "try      gpt/tiny" in outcome.err


def test_a_folder_of_recipes_that_is_not_there_is_a_usage_error(cli: Cli) -> None:
    assert cli("plan", "gpt/tiny", "--recipes", "no-such-folder").code == 2


def test_no_error_shows_the_value_of_a_secret(cli: Cli) -> None:
    outcome = cli("plan", "gpt/tiny", "environment.variables.HF_TOKEN=[s3cr3t]", "training.seed=x")

    assert outcome.code == 3
    assert "s3cr3t" not in outcome.err + outcome.out
