"""Reports of users of other launchers, and what ours answers; each test names the report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


@pytest.mark.parametrize("name", ["feature/llama 8B", "tf-mnist-job-3:13PM", "x" * 300])
def test_a_branch_name_becomes_a_name_the_service_accepts(name: str, cli: Cli) -> None:
    """https://github.com/microsoft/dstoolkit-mlops-v2/pull/180, https://github.com/Azure/azureml-previews/issues/36."""
    outcome = cli("submit", "gpt/tiny", f"name={name}", f"tracking.experiment={name}", "--dry-run", "--json")

    assert outcome.code == 0
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}", outcome.document["name"])


def test_an_instance_type_that_does_not_exist_is_refused_with_near_misses(cli: Cli) -> None:
    """https://github.com/aws/sagemaker-python-sdk/pull/6124: it was found at job start only."""
    outcome = cli("plan", "gpt/tiny", "cluster.instance_type=Standard_ND96asr_v5")

    assert outcome.code == 3
    assert "Standard_ND96asr_v5" in outcome.err
    assert "Standard_ND96asr_v4" in outcome.err


def test_a_slash_for_a_dot_is_refused_with_the_right_advice(cli: Cli) -> None:
    """https://github.com/hydra-ecosystem/hydra/issues/775: ran on the wrong partition; later advised '+'."""
    outcome = cli("plan", "gpt/tiny", "cluster/instance_count=4")

    assert outcome.code == 3
    assert "cluster/instance_count" in outcome.err
    assert "try      cluster.instance_count=4" in outcome.err
    assert "+cluster" not in outcome.err


def test_a_misspelt_key_is_refused_with_the_near_one(cli: Cli) -> None:
    """https://github.com/hydra-ecosystem/hydra/issues/775."""
    outcome = cli("plan", "gpt/tiny", "cluster.instance_cont=4")

    assert outcome.code == 3
    assert "did you mean cluster.instance_count?" in outcome.err


def test_a_value_may_hold_equals_signs(cli: Cli) -> None:
    """https://github.com/hydra-ecosystem/hydra/issues/1314: mismatched input '='."""
    path = "/mnt/ckpt/step=100-loss=2.1.ckpt"

    outcome = cli("recipes", "show", "gpt/tiny", f"model.init_from={path}", "--json")

    assert outcome.document["recipe"]["model"]["init_from"] == path


def test_a_name_made_of_a_value_holds_no_equals_sign(cli: Cli) -> None:
    """https://github.com/hydra-ecosystem/hydra/issues/1314: submitit broke on '\\=' in the folder's name."""
    outcome = cli("submit", "gpt/tiny", "name=lr=0.1", "--dry-run", "--json")

    assert not set("=\\") & set(outcome.document["name"])


def test_templates_of_azure_ml_pass_through(cli: Cli) -> None:
    """https://github.com/omry/omegaconf/issues/981: token recognition error at '{'."""
    words = ("entry.script=train.py", "entry.arguments=[--data,${{inputs.corpus}}]")

    outcome = cli("recipes", "show", "gpt/tiny", *words, "--json")

    assert outcome.document["recipe"]["entry"]["arguments"] == ["--data", "${{inputs.corpus}}"]


@pytest.mark.parametrize(("gpus_per_node", "batch", "nearest"), [(64, 500, ("448", "512")), (16, 24, ("16", "32"))])
def test_a_batch_that_does_not_divide_names_the_nearest_that_do(
    gpus_per_node: int, batch: int, nearest: tuple[str, str], cli: Cli
) -> None:
    """https://github.com/mosaicml/examples/pull/41: silent truncation."""
    outcome = cli(
        "plan",
        "gpt/tiny",
        f"cluster.processes_per_instance={gpus_per_node}",
        f"training.global_batch_size={batch}",
        "training.micro_batch_size=1",
    )

    assert outcome.code == 3
    assert all(value in outcome.err for value in nearest)


def test_a_batch_over_two_data_parallel_ranks_is_accumulated(cli: Cli) -> None:
    """https://github.com/NVIDIA/Megatron-LM/pull/414: 24 = 1 micro x 2 data x 12 accumulation."""
    words = ("training.global_batch_size=24", "training.micro_batch_size=1", "--json")

    assert cli("plan", "gpt/tiny", *words).document["batch"]["gradient_accumulation_steps"] == 12


def test_a_sweep_with_a_dependent_value_is_three_jobs(cli: Cli) -> None:
    """https://github.com/hydra-ecosystem/hydra/issues/725: nine jobs instead of three."""
    words = ("gpt/tiny", "training.seed=1,2,3", "description=seed ${training.seed}", "data=demo")
    jobs = cli("submit", *words, "--dry-run", "--json").document["jobs"]

    assert len({job["name"] for job in jobs}) == 3
    assert [f"seed {seed}" in job["rendered"] for seed, job in enumerate(jobs, 1)] == [True] * 3


def test_a_sweep_says_how_many_jobs_and_what_they_take_together(cli: Cli) -> None:
    one = cli("plan", "gpt/1.3b", "cluster=nd_h100_v5", "training.seed=1", "--json").document
    outcome = cli("plan", "gpt/1.3b", "cluster=nd_h100_v5", "training.seed=1,2,3", "--json").document

    assert [job["overrides"] for job in outcome["jobs"]] == [
        ["training.seed=1"],
        ["training.seed=2"],
        ["training.seed=3"],
    ]
    assert outcome["total"]["jobs"] == 3
    assert outcome["total"]["dollars"] == pytest.approx(3 * one["cost"]["dollars"])
    assert outcome["total"]["device_hours"] == pytest.approx(3 * 8 * one["time"]["expected_hours"])
    text = cli("plan", "gpt/1.3b", "cluster=nd_h100_v5", "training.seed=1,2,3").out
    assert "3 jobs, " in text
    assert " GPU-hours, $" in text


def test_one_refused_job_refuses_the_sweep_with_its_own_words(cli: Cli) -> None:
    outcome = cli("submit", "gpt/tiny", "parallelism.zero_stage=0,3")

    assert outcome.code == 3
    assert "parallelism.zero_stage = 3" in outcome.err
    assert "submitted" not in outcome.out


@pytest.mark.parametrize("seeds", ["1", "1,2"])
@pytest.mark.parametrize("verb", ["plan", "submit"])
def test_a_recipe_that_cannot_be_planned_gets_every_edit_from_every_verb(verb: str, seeds: str, cli: Cli) -> None:
    """500 sequences over 64 ranks: the nearest that divide are 448 and 512."""
    layout = ("cluster=nd_h100_v5", "cluster.instance_count=8", f"training.seed={seeds}")
    batch = ("training.global_batch_size=500", "training.micro_batch_size=1")
    outcome = cli(verb, "gpt/1.3b", *layout, *batch)

    assert outcome.code == 3
    assert "training.global_batch_size=448" in outcome.err
    assert "training.global_batch_size=512" in outcome.err


@pytest.mark.parametrize("options", [("--resume", "latest"), ("--follow", "--json")])
def test_what_means_one_run_is_refused_for_several(options: tuple[str, ...], cli: Cli) -> None:
    assert cli("submit", "gpt/tiny", "training.seed=1,2", *options).code == 2


def test_a_sweep_without_end_is_refused(cli: Cli) -> None:
    outcome = cli("plan", "gpt/tiny", "training.seed=range(0,1000000000)")

    assert outcome.code == 3
    assert "at most 1,000" in outcome.err


def test_a_verb_about_one_recipe_names_those_that_sweep(cli: Cli) -> None:
    outcome = cli("search", "gpt/13b", "training.seed=1,2,3")

    assert outcome.code == 3
    assert "launcher plan and launcher submit take a sweep" in outcome.err


def test_a_team_folder_goes_before_the_shipped_recipes(cli: Cli, tmp_path: Path) -> None:
    """https://github.com/hydra-ecosystem/hydra/issues/2758: the packaged file won."""
    (tmp_path / "model" / "gpt").mkdir(parents=True)
    (tmp_path / "model" / "gpt" / "tiny.yaml").write_text(
        "model_type: gpt2\nhidden_size: 2048\nnum_hidden_layers: 4\nnum_attention_heads: 4\nvocab_size: 2048\n"
    )

    outcome = cli("recipes", "show", "gpt/tiny", "--recipes", tmp_path, "--json")

    assert outcome.document["recipe"]["model"]["hidden_size"] == 2048
    assert outcome.document["origins"]["model.hidden_size"] == f"{tmp_path.name}/model/gpt/tiny.yaml:2"
    assert "model/gpt/tiny" in outcome.err
    assert cli("plan", "llama/tiny", "--recipes", tmp_path).code == 0


def test_a_resolved_recipe_is_shown_without_secrets(cli: Cli) -> None:
    """https://github.com/everycure-org/matrix/issues/407: saved in clear."""
    words = ("environment.variables.AZURE_STORAGE_KEY=k123456", "environment.variables.EMPTY_TOKEN=''")

    shown = cli("recipes", "show", "gpt/tiny", *words, "--json").document["recipe"]["environment"]["variables"]

    assert shown == {"AZURE_STORAGE_KEY": "[REDACTED]", "EMPTY_TOKEN": ""}
    assert "k123456" not in cli("recipes", "show", "gpt/tiny", *words).out


def test_environment_variables_are_text_as_a_shell_writes_it(cli: Cli) -> None:
    """https://github.com/Azure/azure-cli-extensions/issues/8475: booleans and numbers reached the payload untyped."""
    words = [f"environment.variables.{word}" for word in ("A=true", "OMP_NUM_THREADS=8", "LR=1.0e-4")]

    shown = cli("recipes", "show", "gpt/tiny", *words, "--json").document["recipe"]["environment"]["variables"]

    assert shown["A"] == "true"
    assert shown["OMP_NUM_THREADS"] == "8"
    assert float(shown["LR"]) == 1e-4
    assert all(isinstance(value, str) for value in shown.values())


def test_more_processes_than_gpus_are_refused_with_both_numbers(cli: Cli) -> None:
    """https://github.com/MicrosoftDocs/azure-docs/issues/111307: the page said GPUs x nodes."""
    outcome = cli("plan", "gpt/125m", "cluster=ndm_a100_v4", "cluster.processes_per_instance=16")

    assert outcome.code == 3
    assert "16" in outcome.err
    assert "8 GPUs" in outcome.err


def test_two_nodes_of_eight_gpus_are_sixteen_ranks(cli: Cli) -> None:
    """https://github.com/MicrosoftDocs/azure-docs/issues/111307."""
    outcome = cli("plan", "gpt/125m", "cluster=ndm_a100_v4", "cluster.instance_count=2", "--json")

    assert outcome.document["topology"]["world_size"] == 16
    assert outcome.document["topology"]["processes_per_node"] == 8
