"""Parameters one rank computes with, before ZeRO shards them."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from launcher.plan.families.decoder import (
    attention_parameters,
    dense_layers,
    feed_forward_parameters,
    norm_parameters,
)
from launcher.plan.families.moe import expert_parameters, router_parameters, shared_parameters

if TYPE_CHECKING:
    from launcher.plan.workload import Shape, Workload


class LocalParameters(NamedTuple):
    """Parameters of one rank on one pipeline stage."""

    layers: float
    """Of its layers, experts apart."""
    experts: float
    ends: float
    """Embedding, positions, output."""
    head: float = 0.0
    """The output projection, be it the embedding's own weights."""

    @property
    def dense(self) -> float:
        """Everything but experts."""
        return self.layers + self.ends

    @property
    def all(self) -> float:
        """Everything."""
        return self.layers + self.experts + self.ends


def layer_parameters(shape: Shape, tensor: int) -> tuple[float, float]:
    """One average layer's share of a tensor rank, experts apart; and all of its experts.

    Norms and routers are divided too, though each rank has them whole: 0.01 % of a layer.
    """
    moe = shape.moe_layers / shape.layers
    dense = dense_layers(shape) / shape.layers * feed_forward_parameters(shape) + moe * shared_parameters(shape)
    rest = attention_parameters(shape) + 2 * norm_parameters(shape) + moe * router_parameters(shape)
    return (dense + rest) / tensor, moe * shape.experts * expert_parameters(shape)


def rank_layer(workload: Workload) -> tuple[float, float]:
    """One average layer's share of a rank before ZeRO: all but experts, and its experts."""
    dense, experts = layer_parameters(workload.shape, workload.layout.tensor)
    return dense, experts / workload.layout.expert / workload.expert_tensor


def local_parameters(workload: Workload, *, layers: float, has_first: bool, has_last: bool) -> LocalParameters:
    """Parameters of a stage of ``layers`` layers, with the embedding or the head where it is an end."""
    shape, layout = workload.shape, workload.layout
    each, experts = rank_layer(workload)
    table = shape.vocab * shape.hidden / layout.tensor
    ends = has_first * (table + shape.positions * shape.hidden)
    if has_last:
        ends += norm_parameters(shape) + (0 if has_first and shape.is_tied else table)
    return LocalParameters(each * layers, experts * layers, ends, table if has_last else 0.0)


def fullest_layers(workload: Workload) -> int:
    """Layers of the fullest stage."""
    layout, layers = workload.layout, workload.shape.layers
    return ceil(layers / (layout.pipeline * layout.virtual)) * layout.virtual if layout.pipeline > 1 else layers
