"""Mixture-of-experts parts of a decoder: parameters of experts, shared expert and router."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.families.decoder import dense_lines
from launcher.plan.plan import ParameterLine

if TYPE_CHECKING:
    from launcher.plan.workload import Shape


def expert_parameters(shape: Shape) -> int:
    """One expert of one layer: gate, up and down projections (down and up alone when not gated)."""
    return (3 if shape.is_gated else 2) * shape.hidden * shape.expert_ffn


def shared_parameters(shape: Shape) -> int:
    """One layer's shared expert."""
    return (3 if shape.is_gated else 2) * shape.hidden * shape.shared_ffn


def router_parameters(shape: Shape) -> int:
    """One layer's router: a row per expert."""
    return shape.hidden * shape.experts


def parameter_lines(shape: Shape) -> tuple[ParameterLine, ...]:
    """Every part of the model, named; the sum is what ``sum(p.numel())`` of the built model gives."""
    if not shape.is_moe:
        return dense_lines(shape)
    lines = {
        "experts": shape.moe_layers * shape.experts * expert_parameters(shape),
        "shared expert": shape.moe_layers * shared_parameters(shape),
        "router": shape.moe_layers * router_parameters(shape),
    }
    return dense_lines(shape) + tuple(ParameterLine(name=name, parameters=n) for name, n in lines.items() if n)


def parameters(shape: Shape) -> int:
    """All parameters."""
    return sum(line.parameters for line in parameter_lines(shape))


def active_parameters(shape: Shape) -> int:
    """Parameters one token passes through: all but the experts it is not routed to."""
    idle = shape.moe_layers * (shape.experts - shape.experts_per_token) * expert_parameters(shape)
    return parameters(shape) - idle
