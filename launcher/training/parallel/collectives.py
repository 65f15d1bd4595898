"""Collectives that gradients flow through.

Each is its own transpose's partner: what is summed forward is copied backward, what is gathered is scattered
(Megatron-LM's f and g, arXiv:1909.08053, section 3; g and g-bar of arXiv:2205.05198, section 4).
An axis of one rank passes everything through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from launcher.training.parallel.groups import Axis


def copy_in(tensor: torch.Tensor, axis: Axis) -> torch.Tensor:
    """The same tensor on every rank; gradients are summed over the axis."""
    return tensor if axis.group is None else _Copy.apply(tensor, axis.group)  # type: ignore[no-untyped-call]


def sum_out(tensor: torch.Tensor, axis: Axis) -> torch.Tensor:
    """The sum over the axis, on every rank; gradients are those of any one rank."""
    return tensor if axis.group is None else _Sum.apply(tensor, axis.group)  # type: ignore[no-untyped-call]


def gather_in(tensor: torch.Tensor, axis: Axis, *, dim: int) -> torch.Tensor:
    """All ranks' tensors joined along ``dim``; gradients are summed, and each rank keeps its own part."""
    return tensor if axis.group is None else _Gather.apply(tensor, axis, dim)  # type: ignore[no-untyped-call]


def scatter_out(tensor: torch.Tensor, axis: Axis, *, dim: int) -> torch.Tensor:
    """The sum over the axis, of which each rank keeps its part along ``dim``; gradients are gathered."""
    return tensor if axis.group is None else _Scatter.apply(tensor, axis, dim)  # type: ignore[no-untyped-call]


def split_out(tensor: torch.Tensor, axis: Axis, *, dim: int) -> torch.Tensor:
    """This rank's part along ``dim`` of what every rank has; gradients are gathered."""
    return tensor if axis.group is None else _Split.apply(tensor, axis, dim)  # type: ignore[no-untyped-call]


def exchange(tensor: torch.Tensor, axis: Axis, *, sent: list[int], received: list[int]) -> torch.Tensor:
    """Rows to and from every rank of the axis: ``sent[r]`` rows go to rank r, ``received[r]`` come from it."""
    if axis.group is None:
        return tensor
    return _Exchange.apply(tensor, axis.group, sent, received)  # type: ignore[no-any-return, no-untyped-call]


def _all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    result = tensor.contiguous().clone()
    dist.all_reduce(result, group=group)
    return result


def _all_gather(tensor: torch.Tensor, axis: Axis, dim: int) -> torch.Tensor:
    parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(axis.size)]
    dist.all_gather(parts, tensor.contiguous(), group=axis.group)
    return torch.cat(parts, dim)


def _reduce_scatter(tensor: torch.Tensor, axis: Axis, dim: int) -> torch.Tensor:
    parts = [part.contiguous() for part in tensor.chunk(axis.size, dim)]
    result = torch.empty_like(parts[axis.rank])
    dist.reduce_scatter(result, parts, group=axis.group)
    return result


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _all_reduce(gradient, ctx.group), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        return _all_reduce(tensor, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, axis: Axis, dim: int) -> torch.Tensor:
        ctx.axis, ctx.dim = axis, dim
        return _all_gather(tensor, axis, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _reduce_scatter(gradient, ctx.axis, ctx.dim), None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, axis: Axis, dim: int) -> torch.Tensor:
        ctx.axis, ctx.dim = axis, dim
        return _reduce_scatter(tensor, axis, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _all_gather(gradient, ctx.axis, ctx.dim), None, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, axis: Axis, dim: int) -> torch.Tensor:
        ctx.axis, ctx.dim = axis, dim
        return tensor.chunk(axis.size, dim)[axis.rank].contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _all_gather(gradient, ctx.axis, ctx.dim), None, None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup, sent: list[int], received: list[int]
    ) -> torch.Tensor:
        ctx.group, ctx.sent, ctx.received = group, sent, received
        return _all_to_all(tensor, group, sent, received)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _all_to_all(gradient, ctx.group, ctx.received, ctx.sent), None, None, None


def _all_to_all(tensor: torch.Tensor, group: dist.ProcessGroup, sent: list[int], received: list[int]) -> torch.Tensor:
    result = tensor.new_empty((sum(received), *tensor.shape[1:]))
    dist.all_to_all_single(result, tensor.contiguous(), received, sent, group=group)
    return result
