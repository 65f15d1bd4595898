"""The plan as a whole: equations, places, JSON, digest."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from launcher.plan.codec import decode, encode, plan_digest
from launcher.plan.plan import place
from launcher.plan.planner import make_plan
from launcher.recipe.schema import Cluster, Parallelism, Recipe, Training
from tests.plan.recipes import GPT3_175B, on, recipe


def gpt3() -> Recipe:
    return recipe(
        GPT3_175B,
        training=Training(
            seq_length=2048,
            global_batch_size=1536,
            train_tokens=300_000_000_000,
            activation_checkpointing="full",
        ),
        parallelism=Parallelism(
            engine="fsdp", tensor_parallel_size=8, pipeline_parallel_size=8, zero_stage=1, sequence_parallel=True
        ),
        cluster=on("Standard_ND96isr_H100_v5", 128),
    )


def test_world_and_batch_multiply_out() -> None:
    plan = make_plan(gpt3())

    assert plan.topology.equation == "tensor 8 x pipeline 8 x context 1 x data 16 = 1024"
    assert plan.batch.equation == "1 micro x 16 data x 96 accumulation = 1536 sequences"
    assert plan.batch.train_steps == 95_368  # ceil(300e9 / (1536 x 2048))


def test_the_lines_add_up_to_the_totals() -> None:
    plan = make_plan(gpt3())

    assert sum(line.bytes for line in plan.memory.lines) == plan.memory.bytes_per_gpu
    assert sum(line.seconds for line in plan.time.lines) == pytest.approx(plan.time.step_seconds)
    assert sum(line.parameters for line in plan.parameter_lines) == plan.parameters


def test_dollars_are_vm_hours_times_the_dated_price() -> None:
    plan = make_plan(gpt3())

    assert plan.cost.dollars == pytest.approx(128 * 98.32 * plan.time.expected_hours)
    assert plan.cost.price_date == "2024 (undated snapshot)"


def test_mfu_counts_no_recompute_and_hfu_does() -> None:
    plan = make_plan(gpt3())

    assert plan.time.mfu is not None
    assert plan.time.hfu == pytest.approx(plan.time.mfu * 4 / 3)
    assert plan.time.mfu == pytest.approx(plan.time.tokens_per_second * plan.time.flops_per_token / (1024 * 989.4e12))


def test_a_price_of_ones_own_wins() -> None:
    asked = recipe(cluster=Cluster(price_dollars_per_hour=7.0, instance_count=1))

    assert make_plan(asked).cost.dollars_per_hour == 7.0


def test_a_plan_survives_json() -> None:
    plan = make_plan(gpt3())

    assert decode(json.loads(json.dumps(encode(plan)))) == plan


def test_json_has_the_documented_names() -> None:
    document = encode(make_plan(gpt3()))

    assert {"topology", "batch", "parameters", "memory", "time", "cost", "energy", "calibration", "findings"} <= set(
        document
    )
    assert document["parameters"] == 174_604_259_328
    assert {"bytes_per_gpu", "low_bytes", "high_bytes", "usable_bytes", "verdict", "lines"} <= set(document["memory"])
    assert {"step_seconds", "tokens_per_second_per_gpu", "mfu", "hours"} <= set(document["time"])


def test_the_digest_is_that_of_the_plan_and_changes_with_it() -> None:
    plan = make_plan(gpt3())
    other = make_plan(replace(gpt3(), name="other"))

    assert plan.plan_digest == plan_digest(plan) == make_plan(gpt3()).plan_digest
    assert other.plan_digest != plan.plan_digest


def test_tensor_ranks_are_neighbours_and_pipeline_stages_far_apart() -> None:
    topology = make_plan(gpt3()).topology
    first, neighbour, last = (place(topology, rank) for rank in (0, 1, 1023))

    assert (first.node, first.tensor, neighbour.node, neighbour.tensor) == (0, 0, 0, 1)
    assert (last.node, last.pipeline, last.data, last.tensor) == (127, 7, 15, 7)


def test_a_local_plan_costs_nothing_and_claims_no_calibration() -> None:
    plan = make_plan(recipe())

    assert (plan.cost.dollars, plan.calibration, plan.memory.verdict) == (0.0, "outside", "unknown")
    assert "nothing about this machine was measured" in plan.assumptions[0]
