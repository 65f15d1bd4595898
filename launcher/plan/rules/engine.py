"""Rules of who can do what: ddp replicates, fsdp combines anything, deepspeed excludes some pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.rules.case import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Finding
    from launcher.plan.rules.case import Case

_SPLITS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "context_parallel_size",
    "expert_parallel_size",
    "zero_stage",
)


def ddp_replicates(case: Case) -> Iterator[Finding]:
    """DDP holds the whole model on every rank: it splits nothing, shards nothing, offloads nothing."""
    layout = case.recipe.parallelism
    if layout.engine != "ddp":
        return
    asked = {name: getattr(layout, name) for name in _SPLITS if getattr(layout, name) > (name != "zero_stage")}
    asked |= {name: getattr(layout, name) for name in _OFFLOADS if getattr(layout, name) != "none"}
    asked |= {"shard_group_size": layout.shard_group_size} if layout.shard_group_size else {}
    if not asked:
        return
    words = ", ".join(f"{name}={value}" for name, value in asked.items())
    undo = tuple(f"parallelism.{name}={_UNDONE.get(name, 1)}" for name in asked)
    yield finding(
        "error",
        "engine_ddp",
        f"engine ddp keeps the whole model on every rank and cannot do {words}",
        "parallelism.engine",
        *(f"parallelism.{name}" for name in asked),
        allowed="engine fsdp (any combination) or deepspeed",
        edits=(("parallelism.engine=fsdp",), ("parallelism.engine=deepspeed",), undo),
    )


_OFFLOADS = ("offload_optimizer", "offload_parameters")
_UNDONE = {
    "zero_stage": "0",
    "shard_group_size": "null",
    "virtual_pipeline_parallel_size": "null",
    "offload_optimizer": "none",
    "offload_parameters": "none",
}


def deepspeed_tensor(case: Case) -> Iterator[Finding]:
    """DeepSpeed's tensor parallelism (AutoTP) works up to ZeRO-2."""
    layout = case.recipe.parallelism
    if layout.engine == "deepspeed" and layout.tensor_parallel_size > 1 and layout.zero_stage == 3:
        yield finding(
            "error",
            "deepspeed_tensor",
            f"DeepSpeed combines {layout.tensor_parallel_size}-way tensor parallelism (AutoTP) with ZeRO 0 to 2 only",
            "parallelism.zero_stage",
            "parallelism.tensor_parallel_size",
            allowed="zero_stage 0, 1 or 2",
            edits=(
                ("parallelism.zero_stage=2",),
                ("parallelism.engine=fsdp",),
                ("parallelism.tensor_parallel_size=1",),
            ),
        )


def deepspeed_axes(case: Case) -> Iterator[Finding]:
    """DeepSpeed as our trainer drives it: no expert ranks, no virtual stages, no context ranks inside a pipeline."""
    layout = case.recipe.parallelism
    if layout.engine != "deepspeed":
        return
    asked = {
        "expert_parallel_size": layout.expert_parallel_size > 1,
        "virtual_pipeline_parallel_size": (layout.virtual_pipeline_parallel_size or 1) > 1,
        "context_parallel_size": layout.context_parallel_size > 1 and layout.pipeline_parallel_size > 1,
    }
    for name, holds in asked.items():
        if holds:
            undone = _UNDONE.get(name, 1)
            yield finding(
                "error",
                "deepspeed_axes",
                f"engine deepspeed cannot do {name}={getattr(layout, name)} here",
                f"parallelism.{name}",
                "parallelism.engine",
                allowed="engine fsdp",
                edits=(("parallelism.engine=fsdp",), (f"parallelism.{name}={undone}",)),
            )


def zero_alone(case: Case) -> Iterator[Finding]:
    """ZeRO shards over ranks that hold the same parameters; one rank has nobody to share with."""
    layout = case.recipe.parallelism
    if case.world % case.model_ranks or not layout.zero_stage:
        return
    data = case.world // case.model_ranks
    if data * layout.context_parallel_size > 1 or case.world == 1:
        return
    yield finding(
        "warning",
        "zero_alone",
        f"ZeRO-{layout.zero_stage} shards over the data-parallel ranks, and there is 1 (dp=1): it saves no memory here",
        "parallelism.zero_stage",
        "cluster.instance_count",
        edits=((f"cluster.instance_count={2 * case.recipe.cluster.instance_count}",),),
    )


def offload(case: Case) -> Iterator[Finding]:
    """Offloading is part of ZeRO: optimizer state from stage 1, parameters at stage 3."""
    layout = case.recipe.parallelism
    if layout.engine == "ddp":
        return
    if layout.offload_optimizer != "none" and layout.zero_stage == 0:
        message = "optimizer state is offloaded by ZeRO stages 1 to 3; zero_stage is 0"
        keys = ("parallelism.offload_optimizer", "parallelism.zero_stage")
        edits = (("parallelism.zero_stage=2",), ("parallelism.offload_optimizer=none",))
        yield finding("error", "offload_optimizer", message, *keys, edits=edits)
    if layout.offload_parameters != "none" and layout.zero_stage < 3:
        message = f"parameters are offloaded by ZeRO-3 alone; zero_stage is {layout.zero_stage}"
        keys = ("parallelism.offload_parameters", "parallelism.zero_stage")
        edits = (("parallelism.zero_stage=3",), ("parallelism.offload_parameters=none",))
        yield finding("error", "offload_parameters", message, *keys, edits=edits)
