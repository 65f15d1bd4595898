"""``launcher plan``: its JSON, its exit codes, and the grammar of its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.compose.composer import compose
from tests.runs.test_continuation import write_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

LARGE = ("gpt/175b", "cluster=nd_h100_v5", "cluster.instance_count=128")
LAYOUT = ("parallelism.tensor_parallel_size=8", "parallelism.pipeline_parallel_size=8")


def test_the_json_has_the_documented_names(cli: Cli) -> None:
    outcome = cli("plan", *LARGE, *LAYOUT, "--json")

    assert outcome.code == 0, outcome.err
    plan = outcome.document
    assert set(plan) >= {
        "topology", "batch", "parameters", "memory", "time", "cost", "energy", "calibration", "findings",
    }  # fmt: skip
    assert set(plan["memory"]) >= {"bytes_per_gpu", "low_bytes", "high_bytes", "usable_bytes", "verdict", "lines"}
    assert set(plan["time"]) >= {
        "step_seconds", "low_seconds", "high_seconds", "tokens_per_second", "tokens_per_second_per_gpu", "mfu", "hours",
        "lines",
    }  # fmt: skip
    assert set(plan["cost"]) >= {"dollars", "price_date"}
    assert "kilowatt_hours" in plan["energy"]
    assert "error" not in plan


def test_the_equations_hold_in_the_json(cli: Cli) -> None:
    plan = cli("plan", *LARGE, *LAYOUT, "--json").document

    # 128 nodes x 8 GPUs = 1024 = tensor 8 x pipeline 8 x data 16
    assert plan["topology"]["world_size"] == 1024
    assert plan["topology"]["data_parallel_size"] == 16
    batch = plan["batch"]
    assert batch["global_batch_size"] == batch["micro_batch_size"] * 16 * batch["gradient_accumulation_steps"]


def test_the_table_shows_memory_time_and_money(cli: Cli) -> None:
    outcome = cli("plan", *LARGE, *LAYOUT)

    assert outcome.code == 0
    for text in ("= 1024", "memory per GPU", "time per step", "tokens/s", "$/h a VM", "price of", "calibration"):
        assert text in outcome.out


def test_a_refused_plan_is_shown_and_its_errors_told(cli: Cli) -> None:
    outcome = cli("plan", "gpt/13b", "cluster=nd_h100_v5", "cluster.instance_count=1", "parallelism=ddp")

    assert outcome.code == 3
    assert "memory per GPU" in outcome.out
    assert "does not fit" in outcome.err
    assert "[plan.memory]" in outcome.err


def test_a_refused_plan_in_json_is_the_plan_with_an_error(cli: Cli) -> None:
    words = ("gpt/13b", "cluster=nd_h100_v5", "cluster.instance_count=1", "parallelism=ddp")
    outcome = cli("plan", *words, "--json")

    assert outcome.code == 3
    assert outcome.document["memory"]["verdict"] == "does_not_fit"
    assert outcome.document["error"]["code"] == "plan"
    assert "plan.memory" in {fault["code"] for fault in outcome.document["error"]["faults"]}


@pytest.mark.parametrize(
    "words",
    [
        ("gpt/tiny", "training.micro_batch_size=4", "--json"),
        ("--json", "gpt/tiny", "training.micro_batch_size=4"),
        ("training.micro_batch_size=4", "--json", "gpt/tiny"),
        ("recipe=gpt/tiny", "training.micro_batch_size=4", "--json"),
    ],
)
def test_words_and_options_come_in_any_order(words: tuple[str, ...], cli: Cli) -> None:
    outcome = cli("plan", *words)

    assert outcome.code == 0
    assert outcome.document["recipe_name"] == "gpt/tiny"
    assert outcome.document["batch"]["micro_batch_size"] == 4


def test_a_foreign_word_is_read_as_ours_and_said(cli: Cli) -> None:
    outcome = cli("plan", "gpt/tiny", "gradient_checkpointing=true")

    assert outcome.code == 0
    assert "gradient_checkpointing=true is read as training.activation_checkpointing=full" in outcome.err


def test_a_plan_over_the_budget_is_5(cli: Cli) -> None:
    outcome = cli("plan", "gpt/tiny", "cluster.price_dollars_per_hour=1000", "limits.budget_dollars=1", "--json")

    assert outcome.code == 5
    assert outcome.document["error"]["code"] == "budget"


def test_resume_says_whether_a_checkpoint_can_be_read_and_what_changes(cli: Cli, tmp_path: Path) -> None:
    tiny = compose(["gpt/tiny"]).recipe
    folder = write_manifest(tmp_path, tiny, step=12)

    told = cli("plan", "gpt/tiny", "parallelism=fsdp", "--resume", tmp_path)
    document = cli("plan", "gpt/tiny", "parallelism=fsdp", "--resume", tmp_path, "--json").document["resume"]

    assert told.code == 0, told.err
    assert f"resume     {folder}\n" in told.out
    assert "written by ddp ZeRO-0" in told.out
    assert "every rank reads the elements it holds" in told.out
    assert "learns     the same" in told.out
    assert (document["is_readable"], document["is_resharded"], document["step"]) == (True, True, 12)


def test_resume_refuses_another_model_before_anything_is_submitted(cli: Cli, tmp_path: Path) -> None:
    write_manifest(tmp_path, compose(["gpt/tiny"]).recipe, step=12)

    outcome = cli("plan", "gpt/tiny", "model.hidden_size=64", "--resume", tmp_path)

    assert outcome.code == 3
    assert "[resume.model]" in outcome.err
    assert "model.hidden_size" in outcome.err


def test_resume_from_a_folder_without_a_checkpoint_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("plan", "gpt/tiny", "--resume", tmp_path)

    assert outcome.code == 2
    assert "holds no checkpoint" in outcome.err
