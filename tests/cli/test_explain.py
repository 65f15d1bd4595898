"""What ``launcher explain`` says of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.recipe.keys import all_keys

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_a_key_has_meaning_type_allowed_default_and_tag(cli: Cli) -> None:
    outcome = cli("explain", "parallelism.zero_stage")

    assert outcome.code == 0
    assert outcome.out == (
        "parallelism.zero_stage\n"
        "  What is sharded over data-parallel ranks: 1 optimizer state, 2 + gradients, 3 + parameters (ZeRO;\n"
        "  FSDP is 3).\n"
        "  type     choice\n"
        "  allowed  0, 1, 2, 3\n"
        "  default  0\n"
        "  tag      mapping: changes only where and how fast it is computed\n"
    )


def test_in_a_recipe_a_key_has_its_value_and_where_it_was_set(cli: Cli) -> None:
    set_there = cli("explain", "model.hidden_size", "gpt/tiny", "--json").document
    typed = cli("explain", "training.seed", "gpt/tiny", "training.seed=7", "--json").document
    left_alone = cli("explain", "model.dropout", "gpt/tiny", "--json").document

    assert (set_there["value"], set_there["origin"].split(":")[0]) == ("256", "recipes/model/gpt/tiny.yaml")
    assert (typed["value"], typed["origin"]) == ("7", "command line")
    assert left_alone["origin"] == "default"


def test_a_key_that_must_be_given_says_so(cli: Cli) -> None:
    assert "default  none: a recipe must give it" in cli("explain", "model.hidden_size").out


def test_a_section_lists_its_keys(cli: Cli) -> None:
    outcome = cli("explain", "training.schedule", "--json")

    assert [key["key"] for key in outcome.document["keys"]] == [
        "training.schedule.name",
        "training.schedule.warmup_steps",
        "training.schedule.decay_steps",
        "training.schedule.min_learning_rate_ratio",
    ]
    assert cli("explain", "training.schedule").out.startswith("training.schedule  Learning rate over optimizer steps")


def test_part_of_a_key_lists_the_keys_that_hold_it(cli: Cli) -> None:
    outcome = cli("explain", "offload", "--json")

    assert [key["key"] for key in outcome.document["keys"]] == [
        "parallelism.offload_optimizer",
        "parallelism.offload_parameters",
    ]


def test_without_a_key_every_key_is_listed(cli: Cli) -> None:
    assert len(cli("explain", "--json").document["keys"]) == len(all_keys())


def test_a_misspelt_key_gets_its_near_misses(cli: Cli) -> None:
    outcome = cli("explain", "paralelism.zero_stag")

    assert outcome.code == 2
    assert "try      launcher explain parallelism.zero_stage\n" in outcome.err


def test_a_secret_is_not_explained(cli: Cli) -> None:
    outcome = cli("explain", "environment.variables", "gpt/tiny", "environment.variables.HF_TOKEN=abc123")

    assert outcome.code == 0
    assert "abc123" not in outcome.out
