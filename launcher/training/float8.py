"""fp8 matrix products: e4m3 for weights and activations, e5m2 for gradients, one scale a tensor, drawn from the tensor.

The recipe of Micikevicius et al. (arXiv:2209.05433) with dynamic scaling, over ``torch._scaled_mm``: the product is
accumulated in fp32 and comes out in bf16, in which everything else is computed; master weights stay fp32. The linear
layers inside the decoder layers use it, not embedding, head, norms, router and experts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from launcher.training.errors import TrainingError
from launcher.training.parallel.tensor import Columns, FusedColumns, Rows, TransposedColumns

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.training.decoder import Decoder

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
FIRST_CAPABILITY = (8, 9)
"""Compute capability with fp8 products: Ada and Hopper (CUDA C++ programming guide, table of features)."""
UNIT = 16
"""What the extents of a product must be multiples of (cuBLASLt's rule for fp8)."""


def use_float8(decoder: Decoder, device: torch.device) -> None:
    """Give the linear layers of ``decoder`` fp8 products.

    Raises:
        TrainingError: the GPU has none.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < FIRST_CAPABILITY:
        name = torch.cuda.get_device_name(device)
        raise TrainingError(
            f"{name} has no fp8 matrix products", keys=("training.precision",), allowed="fp32, bf16 or fp16",
            suggestion="training.precision=bf16",
        )  # fmt: skip
    for layer in decoder.layers:
        for module in layer.modules():
            product = _product_of(module)
            if product and all(extent % UNIT == 0 for extent in module.weight.flatten(1).shape):
                module.forward = partial(product, module)


def _product_of(module: Any) -> Callable[..., torch.Tensor] | None:
    """How a kind of linear layer multiplies; None for anything else."""
    if isinstance(module, Rows):
        return _rows
    if isinstance(module, (FusedColumns, TransposedColumns)) or type(module).__name__ == "Conv1D":
        return _transposed
    return _linear if isinstance(module, (nn.Linear, Columns)) else None


def _linear(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    return _with_bias(product(hidden, module.weight), getattr(module, "bias", None))


def _transposed(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    """GPT-2 keeps [inputs, outputs], and under tensor parallelism query, key and value as one axis more."""
    bias = module.bias if module.bias is None else module.bias.flatten()
    return _with_bias(product(hidden, module.weight.flatten(1).t()), bias)


def _rows(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    weight = module.weight.t() if module.is_transposed else module.weight
    return _with_bias(module.tensor.leave(product(hidden, weight)), module.bias)


def _with_bias(values: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return values if bias is None else values + bias.to(values.dtype)


def product(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[..., K] by [N, K]: [..., N] in bf16."""
    flat: torch.Tensor = _Product.apply(hidden.reshape(-1, hidden.shape[-1]), weight)  # type: ignore[no-untyped-call]
    return flat.view(*hidden.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """[T, K] by [N, K], forward and back in fp8. Tokens are padded to a multiple of 16: they are summed over in dW."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight)
        return _scaled(hidden, weight, FORWARD, FORWARD)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, weight = ctx.saved_tensors
        to_hidden = _scaled(gradient, weight.t(), BACKWARD, FORWARD)
        padding = (0, 0, 0, -len(hidden) % UNIT)
        padded, rows = (nn.functional.pad(tensor, padding) for tensor in (gradient, hidden))
        to_weight = _scaled(padded.t(), rows.t(), BACKWARD, FORWARD)
        return to_hidden.to(hidden.dtype), to_weight.to(weight.dtype)


def _scaled(left: torch.Tensor, right: torch.Tensor, left_type: torch.dtype, right_type: torch.dtype) -> torch.Tensor:
    """``left`` [M, K] by ``right`` [N, K], each with a scale of its own: [M, N] in bf16."""
    first, first_scale = _quantised(left, left_type)
    second, second_scale = _quantised(right, right_type)
    return torch._scaled_mm(
        first, second.t(), scale_a=first_scale, scale_b=second_scale, out_dtype=torch.bfloat16
    )  # fmt: skip


def _quantised(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Row-major fp8 values whose largest is the type's largest, and what to multiply them by."""
    most = torch.finfo(dtype).max
    scale = most / tensor.detach().abs().amax().float().clamp(min=1e-12)
    return (tensor.float() * scale).clamp(-most, most).to(dtype).contiguous(), scale.reciprocal()
