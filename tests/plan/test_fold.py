"""Folding keeps what decides which code runs, and gives a recipe that plans without errors."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from launcher.compose.composer import compose
from launcher.compose.library import recipe_names
from launcher.errors import PlanError
from launcher.plan.fold import Folded, fold
from launcher.plan.planner import make_plan
from launcher.recipe.schema import Cluster, Entry, Parallelism, Training
from tests.plan.recipes import GPT3_175B, LLAMA3_8B, MIXTRAL_8X7B, TINY, on, recipe

if TYPE_CHECKING:
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Model, Recipe

shipped = functools.cache(lambda name: compose([name]).recipe)
AXES = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size", "data_parallel_size")


def h100(nodes: int, model: Model = LLAMA3_8B, *, training: dict[str, Any] | None = None, **layout: Any) -> Recipe:
    """A recipe on nodes of 8 GPUs, of 64 sequences a step."""
    asked: dict[str, Any] = {"seq_length": 4096, "global_batch_size": 64, "train_steps": 100}
    return recipe(
        model,
        training=Training(**asked | (training or {})),
        parallelism=Parallelism(**{"engine": "fsdp"} | layout),
        cluster=on("Standard_ND96isr_H100_v5", nodes),
    )


def sizes(folded: Folded) -> list[int]:
    """Tensor, pipeline, context and data size."""
    topology = make_plan(folded.recipe).topology
    return [getattr(topology, name) for name in AXES]


def of_layout(plan: Plan) -> list[str]:
    """Messages of errors that are not about memory, hours or dollars, which folding mends."""
    outcomes = ("plan.memory", "plan.lifetime", "plan.budget")
    return [finding.message for finding in plan.errors if finding.code not in outcomes]


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_folds_onto_eight_processes_with_every_axis(name: str) -> None:
    before = shipped(name)

    folded = fold(before)

    planned, plan = make_plan(before), make_plan(folded.recipe)
    assert plan.errors == ()
    assert plan.topology.world_size <= 8
    for axis in AXES:
        assert (getattr(plan.topology, axis) > 1) == (getattr(planned.topology, axis) > 1)
    assert plan.parameters < 2e6
    assert not any("takes more than" in line for line in folded.not_shown)
    for key in ("engine", "zero_stage", "sequence_parallel", "offload_optimizer", "offload_parameters"):
        assert getattr(folded.recipe.parallelism, key) == getattr(before.parallelism, key)
    assert folded.recipe.training.precision == before.training.precision
    assert folded.recipe.model.model_type == before.model.model_type


def test_gpt_175b_of_1024_gpus_becomes_two_by_two_by_two() -> None:
    folded = fold(shipped("gpt/175b"))

    # Two micro batches for each of two stages: the pipeline fills, runs steadily, and drains.
    plan = make_plan(folded.recipe)
    assert plan.topology.equation == "tensor 2 x pipeline 2 x context 1 x data 2 = 8"
    assert plan.batch.equation == "1 micro x 2 data x 4 accumulation = 8 sequences"
    assert "ranks 1024 -> 8" in folded.folded
    assert "parallelism.tensor_parallel_size 8 -> 2" in folded.folded
    assert "parallelism.zero_stage 2" in folded.kept
    assert "training.precision bf16" in folded.kept
    assert folded.not_shown[0].startswith("GPUs: memory, speed, kernels, NCCL")


def test_four_axes_on_eight_processes_give_up_data_and_say_so() -> None:
    asked = h100(4, tensor_parallel_size=2, pipeline_parallel_size=2, context_parallel_size=2, zero_stage=2)

    folded = fold(asked)

    assert sizes(folded) == [2, 2, 2, 1]
    assert folded.not_shown[0] == "data parallelism: takes more than 8 ranks"
    assert sizes(fold(asked, processes=16)) == [2, 2, 2, 2]


def test_one_process_shows_no_axis() -> None:
    folded = fold(shipped("gpt/175b"), processes=1)

    assert sizes(folded) == [1, 1, 1, 1]
    assert [line for line in folded.not_shown if line.endswith("takes more than 1 ranks")] == [
        f"{name}: takes more than 1 ranks"
        for name in ("sharding among ranks", "tensor parallelism", "pipeline parallelism", "data parallelism")
    ]


def test_shard_groups_keep_copies_of_each_other() -> None:
    folded = fold(h100(4, zero_stage=3, shard_group_size=8))

    assert sizes(folded) == [1, 1, 1, 4]
    assert folded.recipe.parallelism.shard_group_size == 2


def test_experts_keep_their_proportion_and_their_spread() -> None:
    folded = fold(h100(1, MIXTRAL_8X7B, zero_stage=3, expert_parallel_size=8)).recipe

    assert (folded.model.num_local_experts, folded.model.num_experts_per_tok) == (8, 2)
    assert folded.parallelism.expert_parallel_size == 2
    many = replace(MIXTRAL_8X7B, num_local_experts=128, num_experts_per_tok=8)  # Qwen3-235B-A22B: 8 of 128
    few = fold(h100(1, many, zero_stage=3)).recipe.model
    assert (few.num_local_experts, few.num_experts_per_tok) == (32, 2)


def test_grouped_queries_stay_grouped_and_a_head_wider_than_its_share_stays_so() -> None:
    llama, qwen = fold(shipped("llama3/8b")).recipe.model, fold(shipped("qwen3/32b")).recipe.model

    assert llama.num_attention_heads == 2 * (llama.num_key_value_heads or 0)
    assert (qwen.head_dim or 0) * qwen.num_attention_heads > qwen.hidden_size


def test_interleaved_stages_and_their_schedule_stay() -> None:
    asked = h100(1, pipeline_parallel_size=4, virtual_pipeline_parallel_size=8, pipeline_schedule="zero_bubble")

    folded = fold(asked).recipe

    assert folded.parallelism.virtual_pipeline_parallel_size == 2
    assert folded.parallelism.pipeline_schedule == "zero_bubble"
    assert folded.model.num_hidden_layers == 4  # one for each stage: 2 ranks x 2


@pytest.mark.parametrize(("micro", "accumulation"), [(64, 1), (32, 2), (4, 2), (1, 2)])
def test_accumulation_above_one_stays_above_one(micro: int, accumulation: int) -> None:
    asked = recipe(training=Training(seq_length=64, global_batch_size=64, micro_batch_size=micro, train_steps=10))

    folded = fold(asked)

    assert make_plan(folded.recipe).batch.gradient_accumulation_steps == accumulation


@pytest.mark.parametrize("precision", ["fp16", "fp8"])
def test_what_a_cpu_does_not_compute_is_named(precision: str) -> None:
    folded = fold(h100(1, training={"precision": precision, "attention": "flash", "compile": True}))

    training = folded.recipe.training
    assert (training.precision, training.attention, training.compile) == ("bf16", "sdpa", False)
    for key in (f"training.precision {precision}", "training.attention flash", "training.compile"):
        assert any(line.startswith(key) for line in folded.not_shown)


def test_convergence_keys_that_steer_code_stay() -> None:
    asked = h100(
        1, replace(LLAMA3_8B, dropout=0.1), training={"activation_checkpointing": "selective", "gradient_clipping": 0.5}
    )

    folded = fold(asked)

    assert {
        "model.dropout 0.1",
        "training.activation_checkpointing selective",
        "training.gradient_clipping 0.5",
    } <= set(folded.kept)


def test_a_deepspeed_block_keeps_what_is_its_own_and_repeats_no_folded_number() -> None:
    block = {
        "train_batch_size": 64,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000},
        "optimizer": {"params": {"lr": 3e-4}},
    }

    folded = fold(h100(1, engine="deepspeed", zero_stage=2, deepspeed=block))

    assert folded.recipe.parallelism.deepspeed == {"zero_optimization": {"reduce_bucket_size": 1000}}
    assert make_plan(folded.recipe).errors == ()


def test_a_script_of_ones_own_is_refused() -> None:
    with pytest.raises(PlanError, match="a script of your own"):
        fold(recipe(entry=Entry(script="train.py")))


def test_folding_is_pure_and_a_folded_recipe_folds_into_itself() -> None:
    once = fold(shipped("gpt/175b")).recipe

    assert fold(shipped("gpt/175b")).recipe == once
    assert replace(fold(once).recipe, name=once.name) == once


LAYOUTS = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(["ddp", "fsdp", "deepspeed"]),
        "tensor_parallel_size": st.sampled_from([1, 1, 2, 4, 8]),
        "pipeline_parallel_size": st.sampled_from([1, 1, 2, 4, 8]),
        "context_parallel_size": st.sampled_from([1, 1, 2, 4]),
        "expert_parallel_size": st.sampled_from([1, 1, 2, 4, 8]),
        "virtual_pipeline_parallel_size": st.sampled_from([None, None, 2, 4]),
        "pipeline_schedule": st.sampled_from([None, None, "gpipe", "1f1b", "interleaved", "zero_bubble"]),
        "zero_stage": st.integers(0, 3),
        "shard_group_size": st.sampled_from([None, None, 1, 2, 8]),
        "sequence_parallel": st.booleans(),
        "offload_optimizer": st.sampled_from(["none", "none", "cpu"]),
    }
)


@settings(max_examples=150, deadline=None)
@given(
    layout=LAYOUTS,
    nodes=st.sampled_from([1, 2, 8, 32]),
    model=st.sampled_from([GPT3_175B, LLAMA3_8B, MIXTRAL_8X7B, TINY]),
    micro=st.sampled_from([1, 2, 3]),
    accumulation=st.sampled_from([1, 2, 8, 24]),
    processes=st.integers(1, 17),
)
def test_whatever_plans_without_errors_folds_into_what_plans_without_errors(
    layout: dict[str, Any], nodes: int, model: Model, micro: int, accumulation: int, processes: int
) -> None:
    model_ranks = layout["tensor_parallel_size"] * layout["pipeline_parallel_size"] * layout["context_parallel_size"]
    data = max(1, nodes * 8 // model_ranks)
    batch = {"seq_length": 128, "micro_batch_size": micro, "global_batch_size": micro * accumulation * data}
    asked = h100(nodes, model, training=batch, **layout)
    try:
        planned = make_plan(asked)
    except PlanError:
        assume(False)
    assume(not of_layout(planned))

    folded = fold(asked, processes=processes)

    plan = make_plan(folded.recipe)
    assert plan.errors == ()
    assert plan.topology.world_size <= processes
    assert (plan.batch.gradient_accumulation_steps > 1) == (accumulation > 1)
    if processes >= 16:
        assert not any("takes more than" in line for line in folded.not_shown)


def test_folding_needs_a_plan() -> None:
    with pytest.raises(PlanError, match="do not divide the world"):
        fold(recipe(parallelism=Parallelism(engine="fsdp", tensor_parallel_size=3), cluster=Cluster()))
