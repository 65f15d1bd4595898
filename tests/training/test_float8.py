"""fp8 products are as close to fp32 ones as their rounding allows."""

from __future__ import annotations

import torch

from launcher.training.float8 import product


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected).norm() / expected.norm())


def test_product_and_gradients_are_within_the_rounding_of_fp8() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(3, 7, 64, requires_grad=True), torch.randn(48, 64, requires_grad=True)
    gradient = torch.randn(3, 7, 48)
    product(hidden, weight).backward(gradient)
    # e4m3 rounds to 1/16 at worst, 3.6 % of a random value on average in each factor; e5m2 to 1/8.
    assert relative(product(hidden, weight).detach(), (hidden @ weight.t()).detach()) < 0.06
    assert hidden.grad is not None
    assert weight.grad is not None
    assert relative(hidden.grad, gradient @ weight.detach()) < 0.09
    assert relative(weight.grad, gradient.flatten(0, 1).t() @ hidden.detach().flatten(0, 1)) < 0.09
