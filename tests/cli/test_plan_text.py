"""The plan on one screen, from a plan written by hand: the layout is ours to keep, the numbers are the planner's."""

from __future__ import annotations

import click

from launcher.cli.plan import refusal
from launcher.cli.plan_text import plan_lines
from launcher.errors import BudgetError, PlanError
from launcher.plan.plan import (
    Batch,
    Cost,
    Edit,
    Energy,
    Estimate,
    Finding,
    Line,
    Memory,
    Plan,
    Storage,
    TimeLine,
    Topology,
)
from launcher.recipe.schema import Model, Recipe, Training
from launcher.units import GIB
from tests.cli.conftest import assert_golden


def a_recipe() -> Recipe:
    model = Model(
        model_type="llama", hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
        vocab_size=128256,
    )  # fmt: skip
    return Recipe(model=model, training=Training(seq_length=8192, global_batch_size=1024))


def a_plan(*findings: Finding) -> Plan:
    """The plan of the transcript in the design: llama3/70b on 32 nodes."""
    return Plan(
        recipe_name="llama3/70b",
        recipe_digest="3f9c2a71" * 8,
        plan_digest="88d0b1e4" * 8,
        hardware="32 x Standard_ND96isr_H100_v5 (256 x H100 80GB)",
        topology=Topology(
            nodes=32, processes_per_node=8, world_size=256, tensor_parallel_size=4, pipeline_parallel_size=4,
            virtual_pipeline_parallel_size=1, context_parallel_size=1, expert_parallel_size=1, data_parallel_size=16,
            shard_group_size=16, equation="tensor 4 x pipeline 4 x context 1 x data 16 = 256",
        ),
        batch=Batch(
            global_batch_size=1024, micro_batch_size=1, gradient_accumulation_steps=64, tokens_per_step=8_388_608,
            train_steps=119_209, train_tokens=1_000_000_000_000,
            equation="1 micro x 16 data x 64 accumulation = 1024 sequences",
        ),
        parameters=70_550_000_000,
        active_parameters=70_550_000_000,
        parameter_lines=(),
        memory=Memory(
            bytes_per_gpu=round(58.7 * GIB), low_bytes=round(56.2 * GIB), high_bytes=round(61.7 * GIB),
            usable_bytes=round(79.1 * GIB), verdict="fits", worst="stage 0", host_bytes_per_node=0,
            lines=(
                Line(name="parameters", bytes=round(8.2 * GIB)),
                Line(name="activations (selective)", bytes=round(28.9 * GIB)),
            ),
        ),
        time=Estimate(
            step_seconds=8.22, low_seconds=7.6, high_seconds=8.9, tokens_per_second=1_020_512,
            tokens_per_second_per_gpu=3986, mfu=0.438, hfu=0.438, flops_per_token=4.3e11, hours=271.2,
            expected_hours=285.6, lines=(TimeLine(name="matrix products", seconds=5.61),),
        ),
        cost=Cost(
            dollars=899_000, dollars_per_hour=3146.24, spot_dollars=None, price_dollars_per_hour=98.32,
            price_date="2026-09", price_region="East US", price_source=None,
        ),
        energy=Energy(kilowatt_hours=63_000, carbon_kilograms=24_000, assumption=""),
        storage=Storage(bytes_per_checkpoint=920 * GIB, bytes_kept=2760 * GIB),
        calibration="inside",
        assumptions=("Azure's list price",),
        findings=findings,
    )  # fmt: skip


def text_of(plan: Plan) -> str:
    return click.unstyle("\n".join(plan_lines(plan, a_recipe(), None))) + "\n"


def test_a_plan_reads_like_the_transcript() -> None:
    findings = (
        Finding(level="warning", code="plan.shm", message="2g of shared memory", allowed="64g or more"),
        Finding(level="note", code="plan.lifetime", message="Azure ML ends a job after 21 days: fine"),
        Finding(
            level="hint",
            code="plan.faster",
            message="fewer stages are faster",
            edits=(
                Edit(
                    overrides=("parallelism.pipeline_parallel_size=2", "training.micro_batch_size=2"),
                    effect="7.7 s a step, 71.0 GiB",
                ),
            ),
        ),
    )

    assert_golden(text_of(a_plan(*findings)), "plan.txt")


def test_no_line_of_a_plan_is_wider_than_the_screen() -> None:
    assert max(map(len, text_of(a_plan()).splitlines())) <= 100


def test_only_the_budget_refuses_a_plan_that_is_only_too_dear() -> None:
    too_dear = Finding(level="error", code="plan.budget", message="$10 is more than limits.budget_dollars $5")
    too_big = Finding(level="error", code="plan.memory", message="does not fit")

    assert type(refusal(a_plan(too_dear))) is BudgetError
    assert type(refusal(a_plan(too_dear, too_big))) is PlanError
    assert refusal(a_plan(too_dear), over_budget=True) is None
    assert refusal(a_plan()) is None


def test_an_edit_says_whether_it_changes_what_is_learnt() -> None:
    edits = (
        Edit(overrides=("training.micro_batch_size=4",), effect="fits, 69 GiB"),
        Edit(overrides=("training.seq_length=1024",), effect="fits, 50 GiB", changes_convergence=True),
    )
    refused = refusal(a_plan(Finding(level="error", code="plan.memory", message="does not fit", edits=edits)))

    assert refused is not None
    assert refused.faults[0].suggestion == (
        "training.micro_batch_size=4  fits, 69 GiB, mapping only\n"
        "training.seq_length=1024     fits, 50 GiB, changes what is learnt"
    )
