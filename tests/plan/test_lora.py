"""Low-rank adapters in a plan: frozen weights stay, their gradients and optimizer state go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.plan.planner import bare_plan
from launcher.recipe.schema import Lora, Parallelism, Training
from tests.plan.recipes import LLAMA2_7B, on, recipe

P = 6_738_415_616
ADAPTERS = 32 * 8 * (4 * (4096 + 4096) + 3 * (4096 + 11008))
"""Rank 8 on all seven linear layers of 32 layers: 19,988,480, as peft prints for Llama-2-7B."""
TRAINING = Training(seq_length=2048, global_batch_size=16, train_steps=100, activation_checkpointing="full")
ADAPTED = replace(TRAINING, lora=Lora(rank=8))


@pytest.mark.parametrize(
    ("layout", "weights", "gradients", "optimizer"),
    [
        (Parallelism(engine="ddp"), 4 * (P + ADAPTERS), 4 * ADAPTERS, 8 * ADAPTERS),
        (Parallelism(engine="fsdp", zero_stage=3), (P + ADAPTERS) / 2, ADAPTERS / 2, ADAPTERS),
        (Parallelism(engine="deepspeed", zero_stage=2), 2 * (P + ADAPTERS), ADAPTERS / 4, 2 * ADAPTERS),
    ],
    ids=["ddp", "fsdp", "deepspeed"],
)
def test_only_adapters_have_gradients_and_optimizer_state(
    layout: Parallelism, weights: float, gradients: float, optimizer: float
) -> None:
    plan = bare_plan(recipe(LLAMA2_7B, training=ADAPTED, parallelism=layout, cluster=on("Standard_ND96isr_H100_v5")))

    lines = {line.name.partition(" (")[0]: line.bytes for line in plan.memory.lines}
    assert lines["parameters"] == pytest.approx(weights, rel=1e-6)
    assert lines["gradients"] == pytest.approx(gradients, rel=1e-4)
    assert lines["optimizer state"] == pytest.approx(optimizer, rel=1e-4)


def test_frozen_weights_spare_a_third_of_the_products() -> None:
    sharded = Parallelism(engine="fsdp", zero_stage=3)
    plain, adapted = (
        bare_plan(
            recipe(LLAMA2_7B, training=training, parallelism=sharded, cluster=on("Standard_ND96isr_H100_v5"))
        ).time
        for training in (TRAINING, ADAPTED)
    )

    # 2 operations a matrix parameter and token fewer: the gradients of 6.61 B weights (input embedding apart).
    assert plain.flops_per_token - adapted.flops_per_token == pytest.approx(2 * (P - 32000 * 4096), rel=1e-4)
    assert adapted.step_seconds < 0.8 * plain.step_seconds
