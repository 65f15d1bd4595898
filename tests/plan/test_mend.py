"""Edits mend: what a finding tells to try leads to a plan that is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.errors import PlanError
from launcher.plan.findings import RefusedPlanError
from launcher.plan.overrides import apply_overrides
from launcher.plan.planner import bare_plan, make_plan
from launcher.recipe.schema import Limits, Parallelism, Recipe, Training
from tests.plan.recipes import GPT3_175B, LLAMA2_7B, LLAMA3_8B, MIXTRAL_8X7B, TINY, on, recipe

H100 = "Standard_ND96isr_H100_v5"
SIZES = (
    H100,
    "Standard_ND96amsr_A100_v4",
    "Standard_ND96asr_v4",
    "Standard_NC24ads_A100_v4",
    "Standard_ND128isr_NDR_GB200_v6",
    "Standard_ND40rs_v2",
)


def errors(asked: Recipe) -> list[Any]:
    """Error findings, whether a plan could be computed or not."""
    try:
        return list(make_plan(asked).errors)
    except RefusedPlanError as refusal:
        return list(refusal.findings)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Layouts as a hurried person writes them."""
    size = st.sampled_from([1, 2, 3, 4, 6, 8, 16])
    parallelism = Parallelism(
        engine=draw(st.sampled_from(["ddp", "fsdp", "deepspeed"])),
        tensor_parallel_size=draw(size),
        pipeline_parallel_size=draw(size),
        virtual_pipeline_parallel_size=draw(st.sampled_from([None, None, 2, 5])),
        context_parallel_size=draw(st.sampled_from([1, 1, 2, 3])),
        expert_parallel_size=draw(st.sampled_from([1, 1, 2, 8])),
        sequence_parallel=draw(st.booleans()),
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        offload_optimizer=draw(st.sampled_from(["none", "none", "cpu"])),
    )
    training = Training(
        seq_length=draw(st.sampled_from([512, 2048, 8192])),
        global_batch_size=draw(st.integers(1, 2048)),
        micro_batch_size=draw(st.sampled_from([1, 2, 3, 8])),
        train_steps=100,
        precision=draw(st.sampled_from(["bf16", "fp16", "fp8"])),
        activation_checkpointing=draw(st.sampled_from(["none", "selective", "full"])),
    )
    model = draw(st.sampled_from([GPT3_175B, LLAMA2_7B, LLAMA3_8B, MIXTRAL_8X7B, TINY]))
    cluster = on(draw(st.sampled_from(SIZES)), draw(st.sampled_from([1, 2, 3, 8, 32])))
    return recipe(model, training=training, parallelism=parallelism, cluster=cluster)


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


def test_a_budget_is_mended_by_a_larger_one() -> None:
    asked = recipe(LLAMA2_7B, cluster=on(H100, 4), limits=Limits(budget_dollars=1))
    asked = replace(
        asked,
        parallelism=Parallelism(engine="fsdp", zero_stage=3),
        training=Training(seq_length=4096, global_batch_size=64, train_steps=10_000),
    )

    (found,) = make_plan(asked).errors
    assert found.edits[0].overrides[0].startswith("limits.budget_dollars=")
