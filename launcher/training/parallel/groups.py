"""The process groups of a topology: one for every axis along which ranks talk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from launcher.plan.plan import place

if TYPE_CHECKING:
    from launcher.plan.plan import Place, Topology
    from launcher.training.ranks import Ranks


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """Ranks along one axis of the world, and where this one stands."""

    size: int
    rank: int
    group: dist.ProcessGroup | None
    """None for an axis of one: nothing is sent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """This rank's groups."""

    place: Place
    tensor: Axis
    context: Axis
    data: Axis
    pipeline: Axis
    expert: Axis
    tied: dist.ProcessGroup | None
    """The first and the last pipeline rank of this rank's line, which share tied embeddings; None for the others."""
    replicas: DeviceMesh
    """``replicate x shard`` over the ranks that hold the same parameters (data x context)."""
    expert_replicas: DeviceMesh
    """The same for the parameters of experts (data / expert x context)."""


def make_groups(topology: Topology, ranks: Ranks, *, shard: int) -> Groups:
    """The groups around this rank; all ranks make theirs in the same order.

    Args:
        topology: Of the plan. Rank order, fastest first: tensor, context, data, pipeline.
        ranks: This process.
        shard: Ranks one copy of sharded state spans; 1 shards nothing.
    """
    tensor, context, data, pipeline = (
        topology.tensor_parallel_size,
        topology.context_parallel_size,
        topology.data_parallel_size,
        topology.pipeline_parallel_size,
    )
    expert, replicas = topology.expert_parallel_size, data * context
    world = torch.arange(topology.world_size).view(pipeline, data // expert, expert, context, tensor)
    lines = {
        "tensor": world.reshape(-1, tensor),
        "context": world.movedim(3, -1).reshape(-1, context),
        "data": world.flatten(1, 2).movedim(1, -1).reshape(-1, data),
        "pipeline": world.movedim(0, -1).reshape(-1, pipeline),
        "expert": world.movedim(2, -1).reshape(-1, expert),
    }
    axes = {name: _axis(grid, ranks.rank) for name, grid in lines.items()}
    ends = lines["pipeline"][:, [0, -1]] if pipeline > 1 else lines["pipeline"]
    same = world.movedim(4, 1).reshape(-1, replicas // shard, shard)
    expert_shard = math.gcd(shard, replicas // expert)
    same_experts = world.permute(0, 4, 2, 1, 3).reshape(-1, replicas // expert // expert_shard, expert_shard)
    return Groups(
        place=place(topology, ranks.rank),
        **axes,
        tied=_axis(ends, ranks.rank).group,
        replicas=_mesh(same, ranks),
        expert_replicas=_mesh(same_experts, ranks) if expert > 1 else _mesh(same, ranks),
    )


def _axis(grid: torch.Tensor, rank: int) -> Axis:
    """The line of ``grid`` [lines, size] that ``rank`` stands in."""
    size = grid.shape[1]
    if size == 1:
        return Axis(size=1, rank=0, group=None)
    line = next((line for line in grid.tolist() if rank in line), None)
    if line is None:
        return Axis(size=size, rank=0, group=None)
    # Each rank makes its own group alone: a world of thousands has thousands of them.
    return Axis(size=size, rank=line.index(rank), group=dist.new_group(line, use_local_synchronization=True))


def _mesh(grid: torch.Tensor, ranks: Ranks) -> DeviceMesh:
    """``replicate x shard`` around this rank, from all of them [others, replicate, shard]."""
    mesh = DeviceMesh(ranks.device.type, grid, mesh_dim_names=("others", "replicate", "shard"))
    return mesh["replicate", "shard"]
