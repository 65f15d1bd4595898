"""Rules of starting weights, adapters and profiled steps: what is refused, why, and what mends it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from launcher.plan.families.adapters import adapter_parameters
from launcher.plan.fold import fold
from launcher.plan.planner import make_plan
from launcher.plan.profiled import profiled_steps
from launcher.recipe.schema import Lora, Parallelism, Training
from tests.plan.recipes import GPT3_175B, LLAMA2_7B, MIXTRAL_8X7B, TINY, on, recipe

if TYPE_CHECKING:
    from launcher.plan.plan import Finding
    from launcher.recipe.schema import Model, Recipe

BATCH = Training(seq_length=128, global_batch_size=16, train_steps=10, precision="bf16")
LORA = replace(BATCH, lora=Lora(rank=8))
MODEL = replace(TINY, init_from="weights")
A100 = "Standard_ND96amsr_A100_v4"


def found(asked: Recipe) -> dict[str, Finding]:
    return {finding.code: finding for finding in make_plan(asked).findings}


def errors(asked: Recipe) -> set[str]:
    return {finding.code for finding in make_plan(asked).errors}


@pytest.mark.parametrize(
    ("layout", "code", "word", "mend"),
    [
        (Parallelism(engine="deepspeed", zero_stage=2), "lora_engine", "deepspeed", "parallelism.engine=fsdp"),
        (Parallelism(engine="fsdp", tensor_parallel_size=2), "lora_layout", "tensor_parallel_size=2",
         "parallelism.tensor_parallel_size=1"),
        (Parallelism(engine="fsdp", pipeline_parallel_size=2), "lora_layout", "pipeline_parallel_size=2",
         "parallelism.pipeline_parallel_size=1"),
    ],
)  # fmt: skip
def test_adapters_are_refused_where_layers_are_not_whole(layout: Parallelism, code: str, word: str, mend: str) -> None:
    finding = found(recipe(MODEL, training=LORA, parallelism=layout, cluster=on(A100)))[f"plan.{code}"]
    assert finding.level == "error"
    assert word in finding.message
    assert mend in finding.edits[0].overrides
    assert finding.edits[-1].overrides == ("training.lora.rank=0",)


@pytest.mark.parametrize(
    "layout",
    [
        Parallelism(),
        Parallelism(engine="fsdp", zero_stage=3, shard_group_size=4),
        Parallelism(engine="fsdp", zero_stage=2, context_parallel_size=2),
    ],
)
def test_adapters_run_over_data_and_context_ranks(layout: Parallelism) -> None:
    assert errors(recipe(MODEL, training=LORA, parallelism=layout, cluster=on(A100))) == set()


def test_adapters_need_layers_by_their_names_and_weights_to_stand_beside() -> None:
    strange = replace(BATCH, lora=Lora(rank=8, target_modules=("q_proj", "c_attn")))
    finding = found(recipe(MODEL, training=strange))["plan.lora_targets"]
    assert finding.message == "gpt2 has no linear layer q_proj in its decoder layers"
    assert finding.allowed == "c_attn, c_proj, c_fc"
    assert found(recipe(TINY, training=LORA))["plan.lora_untrained"].level == "warning"


def test_fp8_and_adapters_exclude_each_other() -> None:
    asked = recipe(MODEL, training=replace(LORA, precision="fp8"), cluster=on("Standard_ND96isr_H100_v5"))
    assert "plan.lora_precision" in errors(asked)


def test_a_folded_recipe_keeps_its_adapters_and_forgets_its_weights() -> None:
    layout = Parallelism(engine="fsdp", zero_stage=3)
    asked = recipe(replace(LLAMA2_7B, init_from="azureml:llama:1"), training=LORA, parallelism=layout, cluster=on(A100))
    folded = fold(asked)
    assert "training.lora.rank 8" in folded.kept
    assert folded.recipe.model.init_from is None
    assert errors(folded.recipe) == set()


@pytest.mark.parametrize(
    ("model", "lora", "parameters"),
    [
        # peft 0.21 print_trainable_parameters() on Llama-2-7B: r=8 on q_proj and v_proj is the well-known 4,194,304.
        (LLAMA2_7B, Lora(rank=8, target_modules=("q_proj", "v_proj")), 4_194_304),
        # All linear layers: 32 x 8 x (4 x (4096 + 4096) + 3 x (4096 + 11008)).
        (LLAMA2_7B, Lora(rank=8), 19_988_480),
        # 32 x 8 x (2 x (4096 + 4096) + 2 x (4096 + 1024)): attention alone.
        (MIXTRAL_8X7B, Lora(rank=8), 6_815_744),
        # GPT-3 175B, query and value of rank 1 is 4.7 M in table 4 of the paper; fused, in and 3 x out: 96 x 4 x 12288.
        (GPT3_175B, Lora(rank=1, target_modules=("c_attn",)), 4_718_592),
        (LLAMA2_7B, Lora(), 0),
    ],
)  # fmt: skip
def test_parameters_of_adapters_are_those_of_the_papers(model: Model, lora: Lora, parameters: int) -> None:
    assert adapter_parameters(model, lora) == parameters


def test_weights_elsewhere_are_refused_before_a_run_starts() -> None:
    remote = found(recipe(replace(TINY, init_from="azureml:llama:1"), training=BATCH))["plan.init_remote"]
    assert "in a workspace" in remote.message
    here = recipe(replace(TINY, init_from="local:gpt-tiny-1"), training=BATCH, cluster=on(A100))
    assert "a run on this machine" in found(here)["plan.init_local"].message


def test_moments_come_from_somewhere_and_belong_to_whole_weights() -> None:
    asked = recipe(replace(TINY, init_optimizer=True), training=LORA)
    messages = [finding.message for finding in make_plan(asked).findings if finding.code == "plan.init_optimizer"]
    assert len(messages) == 2
    assert "names nothing" in messages[0]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("steps:10-12", range(10, 13)),
        ("steps:3", range(3, 4)),
        ("steps:0-2", None),
        ("10-12", None),
        ("steps:5-4", None),
    ],
)
def test_profiled_steps_are_read(text: str, steps: range | None) -> None:
    assert profiled_steps(text) == steps


@pytest.mark.parametrize("text", ["steps:9-11", "10"])
def test_steps_that_the_run_does_not_have_are_refused(text: str) -> None:
    finding = found(recipe(training=replace(BATCH, profile=text)))["plan.profile"]
    assert finding.allowed == "steps:FIRST-LAST, within 1 to 10"
    assert errors(recipe(training=replace(BATCH, profile="steps:9-10"))) == set()
