"""Experts on a rank: cut by expert ranks, and by tensor ranks as our engines do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from launcher.plan.local_parameters import local_parameters, rank_layer
from launcher.plan.stacks import FSDP
from launcher.plan.states import states
from tests.plan.workloads import MEGATRON, layout, llama, on_gpus, workload

if TYPE_CHECKING:
    from launcher.plan.workload import Workload

MIXTRAL = replace(llama(32, 4096, 32, 8, 14336, 32000), experts=8, experts_per_token=2, expert_ffn=14336)
ONE_EXPERT = 3 * 4096 * 14336


def mixtral(stack: object = FSDP, **axes: int) -> Workload:
    """Mixtral 8x7B on 32 H100."""
    axis = layout(32, zero_stage=3, **axes)
    return workload(MIXTRAL, stack, on_gpus("H100"), axis, seq=4096, micro=1, micros=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(("tensor", "expert", "share"), [(1, 1, 8), (2, 1, 4), (1, 8, 1), (2, 4, 1), (8, 1, 1)])
def test_tensor_and_expert_ranks_divide_the_experts_of_a_layer(tensor: int, expert: int, share: int) -> None:
    # launcher/training/parallel/experts.py: each expert's columns over tensor ranks, experts over expert ranks.
    work = mixtral(tensor=tensor, expert=expert)

    assert rank_layer(work)[1] == share * ONE_EXPERT
    assert work.expert_replicas == 32 // tensor // expert


def test_megatrons_tensor_ranks_hold_other_experts_instead() -> None:
    work = mixtral(MEGATRON, tensor=2, expert=4)

    assert rank_layer(work)[1] == 2 * ONE_EXPERT
    assert work.expert_replicas == 8


def test_state_of_all_ranks_together_is_that_of_the_model_whatever_the_axes() -> None:
    # ZeRO-3 shards whatever the other axes leave: 16 bytes a parameter over all ranks (arXiv:1910.02054).
    for axes in ({}, {"tensor": 2}, {"expert": 8}, {"tensor": 2, "expert": 4}):
        work = mixtral(**axes)
        held = states(work, local_parameters(work, layers=32, has_first=True, has_last=True))
        total = 32 * (held.parameters + held.gradients + held.optimizer)
        assert total == pytest.approx(16 * 46_702_792_704, rel=0.001)


def test_a_pipeline_keeps_the_divided_experts_only() -> None:
    whole, halved = (
        states(work, local_parameters(work, layers=8, has_first=False, has_last=False)).gathered
        for work in (mixtral(pipeline=4), mixtral(pipeline=4, tensor=2))
    )

    assert halved == pytest.approx(whole / 2, rel=0.01)
