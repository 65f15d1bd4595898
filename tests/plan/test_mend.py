"""Edits mend: what a finding tells to try leads to a plan that is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.catalog import vm_sizes
from launcher.errors import PlanError
from launcher.plan.findings import RefusedPlanError
from launcher.plan.mend import MOST_PLANS, MOST_TRIES, mended, refused
from launcher.plan.overrides import apply_overrides
from launcher.plan.planner import bare_plan, make_plan
from launcher.recipe.schema import Checkpoint, Cluster, Environment, Limits, Parallelism, Recipe, Training
from tests.plan.recipes import GPT3_175B, LLAMA2_7B, LLAMA3_8B, MIXTRAL_8X7B, TINY, on, recipe

if TYPE_CHECKING:
    from launcher.plan.plan import Plan

H100 = "Standard_ND96isr_H100_v5"
SIZES = tuple(size.name for size in vm_sizes.VM_SIZES)


def errors(asked: Recipe) -> list[Any]:
    """Error findings, whether a plan could be computed or not."""
    try:
        return list(make_plan(asked).errors)
    except RefusedPlanError as refusal:
        return list(refusal.findings)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Recipes as a hurried person writes them: any axis, any size, most of them wrong in several ways."""

    def one_of(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    axis = (1, 1, 2, 3, 4, 6, 8, 16, 64)
    parallelism = Parallelism(
        engine=one_of("ddp", "fsdp", "deepspeed"),
        tensor_parallel_size=one_of(*axis),
        pipeline_parallel_size=one_of(*axis),
        virtual_pipeline_parallel_size=one_of(None, None, 2, 5),
        pipeline_schedule=one_of(None, None, "gpipe", "1f1b", "interleaved", "zero_bubble"),
        context_parallel_size=one_of(1, 1, 2, 3, 8),
        expert_parallel_size=one_of(1, 1, 2, 8),
        data_parallel_size=one_of(None, None, None, 3),
        sequence_parallel=one_of(False, True),
        zero_stage=one_of(0, 1, 2, 3),
        shard_group_size=one_of(None, None, 4, 7),
        offload_optimizer=one_of("none", "none", "cpu", "nvme"),
        offload_parameters=one_of("none", "none", "cpu"),
    )
    training = Training(
        seq_length=one_of(512, 2048, 8192, 131_072),
        global_batch_size=draw(st.integers(1, 2048)),
        micro_batch_size=one_of(1, 2, 3, 8, 64),
        gradient_accumulation_steps=one_of(None, None, 3),
        train_steps=one_of(100, 1_000_000, None),
        train_tokens=one_of(None, None, 10**12),
        precision=one_of("bf16", "fp16", "fp8", "fp32"),
        activation_checkpointing=one_of("none", "selective", "full"),
        attention=one_of("sdpa", "eager"),
    )
    cluster = Cluster(
        backend=one_of("azureml", "local"),
        instance_type=one_of(*SIZES),
        instance_count=one_of(1, 2, 3, 8, 32, 128),
        processes_per_instance=one_of(None, None, None, 1, 3, 16),
        tier=one_of("dedicated", "spot"),
    )
    return recipe(
        one_of(GPT3_175B, LLAMA2_7B, LLAMA3_8B, MIXTRAL_8X7B, TINY),
        training=training,
        parallelism=parallelism,
        cluster=cluster,
        limits=Limits(budget_dollars=one_of(None, None, 1.0)),
        checkpoint=Checkpoint(interval_steps=one_of(0, 100), resume=one_of("auto", "never")),
    )


def planned(asked: Recipe) -> int:
    """Plans computed for a recipe and all its edits."""
    count = 0

    def counting(changed: Recipe) -> Plan:
        nonlocal count
        count += 1
        return bare_plan(changed)

    try:
        mended(asked, counting(asked), counting)
    except RefusedPlanError as refusal:
        refused(asked, refusal, counting)
    return count


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(recipes())
def test_a_refusal_takes_a_bounded_number_of_plans(asked: Recipe) -> None:
    # 20 for all edits, 20 for a plain layout, each overrun by at most the edits of the last step; and the recipe's own.
    assert planned(asked) <= 1 + 2 * (MOST_PLANS + MOST_TRIES)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(recipes())
def test_the_first_edit_of_every_error_makes_an_accepted_plan(asked: Recipe) -> None:
    for finding in errors(asked):
        assert finding.edits, f"{finding.code} leaves no way out: {finding.message}"
        assert bare_plan(apply_overrides(asked, finding.edits[0].overrides)).errors == ()


def test_an_edit_says_what_it_leads_to() -> None:
    training = Training(seq_length=4096, global_batch_size=256, micro_batch_size=8, train_steps=100)
    asked = recipe(
        LLAMA2_7B, training=training, parallelism=Parallelism(engine="fsdp", zero_stage=3), cluster=on(H100, 2)
    )

    (found,) = [finding for finding in make_plan(asked).errors if finding.code == "plan.memory"]
    assert len(found.edits) == 3
    for edit in found.edits:
        assert "GiB" in edit.effect
        assert "s a step, $" in edit.effect
        assert not edit.changes_convergence


def test_memory_that_no_batch_frees_is_mended_by_sharding() -> None:
    # tatsu-lab/stanford_alpaca issue 56: 16 bytes x 6.74 B parameters do not fit one A100 even at batch 1.
    training = Training(seq_length=512, global_batch_size=8, train_steps=100)
    asked = recipe(LLAMA2_7B, training=training, cluster=on("Standard_NC24ads_A100_v4"))

    (found,) = make_plan(asked).errors
    assert found.code == "plan.memory"
    assert all("micro_batch_size" not in override for edit in found.edits for override in edit.overrides)
    assert any("zero_stage=3" in " ".join(edit.overrides) for edit in found.edits)


def test_a_refusal_without_a_plan_still_carries_edits() -> None:
    training = Training(seq_length=512, global_batch_size=500, train_steps=10)

    with pytest.raises(PlanError) as caught:
        make_plan(recipe(TINY, training=replace(training, seq_length=128), cluster=on(H100, 8)))
    assert caught.value.faults[0].suggestion in ("training.global_batch_size=512", "training.global_batch_size=448")


def test_a_convergence_edit_comes_after_mapping_edits() -> None:
    layout = Parallelism(engine="fsdp", zero_stage=3)
    training = Training(seq_length=128, global_batch_size=24, micro_batch_size=2, train_steps=10)

    with pytest.raises(RefusedPlanError) as caught:
        make_plan(recipe(TINY, training=training, parallelism=layout, cluster=on(H100)))
    edits = caught.value.findings[0].edits
    assert [edit.changes_convergence for edit in edits] == sorted(edit.changes_convergence for edit in edits)
    assert edits[0].overrides == ("training.micro_batch_size=3",)


def test_an_error_that_no_edit_mends_leaves_the_others_their_edits() -> None:
    # A variable that holds a template is for its author to mend; the batch is not.
    training = Training(seq_length=128, global_batch_size=9, train_steps=10)
    variables = Environment(name="cuda", variables={"OUTPUT": "${{outputs.x}}"})
    asked = recipe(TINY, training=training, cluster=on(H100), environment=variables)

    found = {finding.code: finding for finding in errors(asked)}
    assert found["plan.variable_template"].edits == ()
    assert found["plan.global_batch"].edits[0].overrides == ("training.global_batch_size=8",)


@pytest.mark.parametrize("steps", [1, 100, 9_000, 10_000, 11_000])
def test_a_budget_is_mended_by_a_larger_one(steps: int) -> None:
    asked = recipe(LLAMA2_7B, cluster=on(H100, 4), limits=Limits(budget_dollars=0.01))
    asked = replace(
        asked,
        parallelism=Parallelism(engine="fsdp", zero_stage=3),
        training=Training(seq_length=4096, global_batch_size=64, train_steps=steps),
    )

    (found,) = make_plan(asked).errors
    assert found.edits[0].overrides[0].startswith("limits.budget_dollars=")
    assert 0 <= float(found.edits[0].overrides[0].partition("=")[2]) - (bare_plan(asked).cost.dollars or 0) < 1
