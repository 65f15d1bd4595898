"""Which rank sits where: ``world = tensor x pipeline x context x data``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.plan import Topology

if TYPE_CHECKING:
    from launcher.catalog.vm_size import VmSize
    from launcher.recipe.schema import Parallelism, Recipe


def processes_per_node(recipe: Recipe, size: VmSize) -> int:
    """Ranks per node: as asked, else one per GPU, else one."""
    return recipe.cluster.processes_per_instance or max(1, size.gpus)


def model_ranks(layout: Parallelism) -> int:
    """Ranks that together hold one replica of the model: tensor x pipeline x context."""
    return layout.tensor_parallel_size * layout.pipeline_parallel_size * layout.context_parallel_size


def make_topology(recipe: Recipe, size: VmSize) -> Topology | None:
    """The topology, or None when ``tensor x pipeline x context`` does not divide the world."""
    layout, per_node = recipe.parallelism, processes_per_node(recipe, size)
    world = recipe.cluster.instance_count * per_node
    data, rest = divmod(world, model_ranks(layout))
    if rest or not data:
        return None
    return Topology(
        nodes=recipe.cluster.instance_count,
        processes_per_node=per_node,
        world_size=world,
        tensor_parallel_size=layout.tensor_parallel_size,
        pipeline_parallel_size=layout.pipeline_parallel_size,
        virtual_pipeline_parallel_size=layout.virtual_pipeline_parallel_size or 1,
        context_parallel_size=layout.context_parallel_size,
        expert_parallel_size=layout.expert_parallel_size,
        data_parallel_size=data,
        shard_group_size=_shard_group(layout, replicas=data * layout.context_parallel_size),
        equation=f"tensor {layout.tensor_parallel_size} x pipeline {layout.pipeline_parallel_size} x "
        f"context {layout.context_parallel_size} x data {data} = {world}",
    )


def _shard_group(layout: Parallelism, *, replicas: int) -> int:
    """Ranks that share one copy of sharded state: context ranks hold the same parameters, so they shard too."""
    return min(layout.shard_group_size or replicas, replicas)
