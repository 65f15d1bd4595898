from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from launcher.errors import PlanError
from launcher.job.build import build_job, intent, with_attempt
from launcher.job.spec import JobSpec, Snapshot
from launcher.plan.planner import make_plan
from launcher.recipe import codec

CODE = Snapshot(root="/code", commit="0123abc", is_dirty=True)
SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256}
LENGTH = {"seq_length": 32, "global_batch_size": 8, "train_steps": 10, "precision": "fp32"}


def job(*, code: Snapshot = CODE, attempt: int = 1, resume_from: str | None = None, **sections: Any) -> JobSpec:
    """The job of a tiny model, with sections of its recipe replaced."""
    mapping = {"name": "gpt/tiny", "model": SHAPE, "training": LENGTH, "data": {"train": ["demo"]}, **sections}
    recipe = codec.decode(mapping)
    return build_job(recipe, make_plan(recipe), code, attempt=attempt, resume_from=resume_from)


def faults(**sections: Any) -> str:
    with pytest.raises(PlanError) as caught:
        job(**sections)
    return "\n".join(f"{fault.what} [{fault.keys[0]}]" for fault in caught.value.faults)


def test_a_name_tells_the_recipe_the_intent_and_the_attempt() -> None:
    assert re.fullmatch(r"gpt-tiny-[0-9a-f]{16}-3", job(attempt=3).name)


def test_names_of_branches_become_names_the_service_accepts() -> None:
    # Case A24: microsoft/dstoolkit-mlops-v2 pull 180, Azure/azureml-previews issue 36.
    branch = job(name="tf-mnist-job-3:13PM", tracking={"experiment": "feature/llama 8B"})

    assert branch.experiment == "feature-llama-8B"
    assert branch.name.startswith("tf-mnist-job-3-13pm-")
    assert branch.display_name == "tf-mnist-job-3:13PM"


def test_names_too_long_are_cut_and_stay_apart() -> None:
    # Azure ML takes 256 characters of an experiment's name, and 255 of a job's.
    first, second = (job(name="x" * 300 + end, tracking={"experiment": "x" * 300 + end}) for end in "ab")

    assert len(first.experiment) <= 256
    assert first.experiment != second.experiment
    assert first.display_name != second.display_name
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}", first.name)


@pytest.mark.parametrize("name", ["", "///", "_x", "-", "日本"])
def test_any_name_becomes_a_name(name: str) -> None:
    odd = job(name=name, tracking={"experiment": name})

    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}", odd.name)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,255}", odd.experiment)


def test_the_same_thing_has_the_same_intent_under_any_name() -> None:
    renamed = job(name="other", description="again", tags={"team": "a"}, tracking={"experiment": "other"})

    assert renamed.name.split("-")[-2] == job().name.split("-")[-2]


@pytest.mark.parametrize(
    "change",
    [
        {"training": {**LENGTH, "seed": 7}},
        {"cluster": {"workspace": "other"}},
        {"cluster": {"compute": "other"}},
        {"code": dataclasses.replace(CODE, commit="4567def")},
        {"code": dataclasses.replace(CODE, is_dirty=False)},
        {"code": dataclasses.replace(CODE, digest="ab" * 32)},
    ],
)
def test_another_thing_or_place_has_another_intent(change: dict[str, Any]) -> None:
    assert job(**change).name != job().name


def test_the_intent_does_not_change_with_the_day() -> None:
    recipe = codec.decode({"model": SHAPE, "training": LENGTH})

    assert intent(recipe, CODE) == intent(codec.decode(codec.encode(recipe)), CODE)


def test_the_next_attempt_differs_in_name_and_number_alone() -> None:
    again = with_attempt(job(), 2)

    assert again == dataclasses.replace(job(attempt=2))
    assert again.document["name"] == again.name


def test_the_document_holds_all_the_trainer_needs() -> None:
    document = job(resume_from="/runs/a/output/checkpoints/step-5", cluster={"processes_per_instance": 2}).document

    recipe = codec.decode(document["recipe"])
    assert document["recipe_digest"] == codec.digest(recipe)
    assert document["plan_digest"] == make_plan(recipe).plan_digest
    assert (document["world_size"], document["attempt"]) == (2, 1)
    assert document["resume_from"] == "/runs/a/output/checkpoints/step-5"


def test_tags_say_which_recipe_plan_and_code() -> None:
    tags = job(tags={"team": "nlp", "recipe": "mine"}).tags

    assert tags["recipe"] == "gpt/tiny"
    assert (tags["team"], tags["git_commit"], tags["git_dirty"]) == ("nlp", "0123abc", "true")
    assert set(tags) == {"team", "recipe", "recipe_digest", "plan_digest", "git_commit", "git_dirty"}


def test_the_trainer_is_the_entry_unless_a_script_is() -> None:
    assert job().command == ("python", "-m", "launcher.training", "{job}", "--output", "{output}")
    assert job(entry={"script": "train.py", "arguments": ["--lr", "1"]}).command == ("python", "train.py", "--lr", "1")


def test_environment_values_are_text() -> None:
    # Case A07: Azure/azure-cli-extensions issue 8475.
    variables = {"RSLEX_DIRECT_VOLUME_MOUNT": True, "OMP_NUM_THREADS": 8, "LR": 1.0e-4, "EMPTY": None}

    assert job(environment={"variables": variables}).environment_variables == {
        "RSLEX_DIRECT_VOLUME_MOUNT": "true",
        "OMP_NUM_THREADS": "8",
        "LR": "0.0001",
    }


def test_every_fault_of_the_variables_is_told_at_once() -> None:
    # Case A06: microsoft/physical-ai-toolchain issue 855. Azure ML expands templates in the command alone.
    variables = {"CKPT_DIR": "${{outputs.checkpoints}}", "RANK": "0", "MY-VAR": "1"}

    assert faults(environment={"variables": variables}).splitlines() == [
        "CKPT_DIR holds a template, and templates work only in the command [environment.variables.CKPT_DIR]",
        "RANK is set for each rank by the launcher [environment.variables.RANK]",
        "'MY-VAR' cannot name an environment variable [environment.variables.MY-VAR]",
    ]


TWO_BY_TWO = {"instance_type": "Standard_NC80adis_H100_v5", "instance_count": 2}


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("torchrun", ["--nnodes", "2", "--nproc_per_node", "2", "train.py"]),
        ("torchrun", ["train.py"]),
        ("/opt/bin/torchrun", ["--nproc-per-node=2", "train.py"]),
        ("-m", ["torch.distributed.run", "--nproc_per_node=2", "train.py"]),
        ("accelerate", ["launch", "--num_machines", "2", "--num_processes", "4", "train.py"]),
        ("deepspeed", ["--num_gpus", "2", "train.py"]),
    ],
)
def test_a_launcher_inside_the_launcher_is_refused(script: str, arguments: list[str]) -> None:
    # Case A27: huggingface/accelerate issue 3494: 2 nodes x 2 processes, each of which would start 2.
    assert "would start 8 processes on 4 GPUs" in faults(
        cluster=TWO_BY_TWO, entry={"script": script, "arguments": arguments}
    )


@pytest.mark.parametrize("script", ["deepspeed", "mpirun"])
def test_a_launcher_that_enters_other_nodes_is_refused_even_once_per_node(script: str) -> None:
    # Case A30: deepspeedai/DeepSpeed issue 1603: password-less ssh between the nodes of a job.
    cluster = TWO_BY_TWO | {"processes_per_instance": 1, "backend": "azureml"}
    assert "over ssh" in faults(cluster=cluster, entry={"script": script, "arguments": ["train.py"]})


def test_one_launcher_per_node_is_accepted() -> None:
    single = job(
        cluster={**TWO_BY_TWO, "processes_per_instance": 1},
        entry={"script": "torchrun", "arguments": ["--nproc_per_node", "2", "train.py"]},
    )

    assert single.command == ("torchrun", "--nproc_per_node", "2", "train.py")


def test_a_script_may_have_a_deepspeed_argument() -> None:
    assert job(cluster=TWO_BY_TWO, entry={"script": "train.py", "arguments": ["--deepspeed", "ds.json"]})


def test_arguments_need_a_script() -> None:
    assert "there is none [entry.arguments]" in faults(entry={"arguments": ["--lr", "1"]})
