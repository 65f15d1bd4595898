"""Which parallel axes stay when a world of any size is folded onto a few processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Topology
    from launcher.recipe.schema import Parallelism


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Sizes of the axes of a folded world."""

    tensor: int
    pipeline: int
    context: int
    data: int

    @property
    def world(self) -> int:
        """All ranks."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters, and may shard them."""
        return self.data * self.context


def fold_axes(topology: Topology, layout: Parallelism, *, processes: int) -> tuple[Axes, tuple[str, ...]]:
    """The axes that show most of ``topology`` with at most ``processes`` ranks, and in words what they do not show.

    An axis is 2 where it was more than 1; data is 4 where shard groups are to have copies of each other (HSDP).
    """
    choices = [axes for axes in _choices(topology, layout) if axes.world <= processes]
    wanted = _shown(_widest(topology, layout), topology, layout)
    best = max(choices, key=lambda axes: (*_worth(_shown(axes, topology, layout)), -axes.world))
    shown = _shown(best, topology, layout)
    return best, tuple(name for name in wanted if wanted[name] and not shown[name])


def is_hybrid(topology: Topology, layout: Parallelism) -> bool:
    """Whether state is sharded inside groups, with copies between them (HSDP)."""
    replicas = topology.data_parallel_size * topology.context_parallel_size
    return layout.shard_group_size is not None and 1 < topology.shard_group_size < replicas


def shard_group(axes: Axes, topology: Topology, layout: Parallelism) -> int | None:
    """``shard_group_size`` of the folded layout: half of the replicas where there were copies of shard groups."""
    if layout.shard_group_size is None or layout.shard_group_size == 1:
        return layout.shard_group_size
    return min(2, axes.replicas) if is_hybrid(topology, layout) else axes.replicas


def _widest(topology: Topology, layout: Parallelism) -> Axes:
    axes = Axes(
        tensor=min(2, topology.tensor_parallel_size),
        pipeline=min(2, topology.pipeline_parallel_size),
        context=min(2, topology.context_parallel_size),
        data=min(2, topology.data_parallel_size),
    )
    return replace(axes, data=4) if is_hybrid(topology, layout) and axes.replicas < 4 else axes


def _choices(topology: Topology, layout: Parallelism) -> Iterator[Axes]:
    widest = _widest(topology, layout)
    sizes = [range(1, most + 1) for most in (widest.tensor, widest.pipeline, widest.context)]
    data = sorted({1, min(2, widest.data), widest.data})
    for tensor, pipeline, context, replicas in product(*sizes, data):
        yield Axes(tensor=tensor, pipeline=pipeline, context=context, data=replicas)


def _shown(axes: Axes, topology: Topology, layout: Parallelism) -> dict[str, bool]:
    """What of the layout a folded world shows, the last to be given up first."""
    return {
        "sharding among ranks": layout.zero_stage > 0 and axes.replicas > 1,
        "tensor parallelism": axes.tensor > 1,
        "pipeline parallelism": axes.pipeline > 1,
        "expert parallelism": layout.expert_parallel_size > 1 and axes.data > 1,
        "context parallelism": axes.context > 1,
        "data parallelism": axes.data > 1,
        "copies of shard groups (HSDP)": is_hybrid(topology, layout) and axes.replicas == 4,
    }


def _worth(shown: dict[str, bool]) -> tuple[int, ...]:
    """As many as possible; of as many, those that matter most."""
    return sum(shown.values()), *shown.values()
