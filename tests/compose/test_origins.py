"""Where the value of a key comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.compose.composer import compose

if TYPE_CHECKING:
    from tests.compose.conftest import Team


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        ("cluster.instance_count", "command line: cluster.instance_count=16"),
        ("environment.variables.A", "command line: environment.variables={A: 1}"),
        ("training.seed", "default"),
        ("nowhere.at.all", "default"),
        ("model.num_attention_heads", "team/model/wide.yaml:3"),
        ("training.seq_length", "team/recipe/mine.yaml:5"),
        ("training.optimizer.learning_rate", "team/recipe/mine.yaml:7"),
        ("data.train[1]", "team/recipe/mine.yaml:9"),
    ],
)
def test_a_key_is_located(key: str, origin: str, team: Team) -> None:
    team(
        "model/wide",
        "model_type: gpt2\nhidden_size: 64\nnum_attention_heads: 4\nnum_hidden_layers: 1\nvocab_size: 300\n",
    )
    folder = team(
        "recipe/mine",
        """
        # @package _global_
        defaults:
          - override /model: wide
        training:
          seq_length: 64
          optimizer:
            learning_rate: 0.01
        data:
          train: [demo, other]
        """,
    )

    composed = compose(
        ["mine", "cluster.instance_count=16", "environment.variables={A: 1}"],
        recipe_dirs=[folder],
    )

    assert composed.origins.locate(key) == origin


def test_the_last_file_that_says_a_key_is_named(team: Team) -> None:
    folder = team("recipe/mine", "defaults: [override /training: gpt3]\ntraining:\n  seq_length: 64\n")

    composed = compose(["mine"], recipe_dirs=[folder])

    assert composed.origins.locate("training.seq_length") == "team/recipe/mine.yaml:3"
    assert composed.origins.locate("training.precision") == "recipes/training/gpt3.yaml:7"
    assert composed.origins.files()[-1] == "team/recipe/mine.yaml"


def test_a_file_may_ask_for_another_section(team: Team) -> None:
    folder = team("cluster/ours", "# @package _global_\ncluster:\n  region: westeurope\nlimits:\n  budget_dollars: 5\n")

    composed = compose(["gpt/tiny", "cluster=ours"], recipe_dirs=[folder])

    assert composed.recipe.limits.budget_dollars == 5
    assert composed.origins.locate("limits.budget_dollars") == "team/cluster/ours.yaml:5"


def test_a_secret_is_not_repeated_in_an_origin() -> None:
    composed = compose(["gpt/tiny", "environment.variables.HF_TOKEN=abc123"])

    assert composed.recipe.environment.variables == {"HF_TOKEN": "abc123"}
    assert composed.origins.locate("environment.variables.HF_TOKEN") == (
        "command line: environment.variables.HF_TOKEN=[REDACTED]"
    )
