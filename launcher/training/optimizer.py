"""AdamW with the recipe's numbers, the same for every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from launcher.recipe.schema import Optimizer

KINDS: tuple[Literal["exp_avg"], Literal["exp_avg_sq"]] = ("exp_avg", "exp_avg_sq")
"""Adam's two moments, by torch's names."""


def is_decayed(name: str, dimensions: int) -> bool:
    """Whether weight decay applies: to matrices, not to biases and norms."""
    return dimensions >= 2 and not name.endswith("bias")


def parameter_groups(
    parameters: Iterable[tuple[str, nn.Parameter]], numbers: Optimizer, *, dimensions: dict[str, int] | None = None
) -> list[dict[str, Any]]:
    """Two groups, with and without weight decay; empty ones are left out.

    Args:
        parameters: Names and parameters.
        numbers: The recipe's optimizer.
        dimensions: Dimensions of the whole parameters, where an engine hides them (ZeRO-3).
    """
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in parameters:
        count = parameter.ndim if dimensions is None else dimensions[name]
        (decayed if is_decayed(name, count) else others).append(parameter)
    groups = [{"params": decayed, "weight_decay": numbers.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def make_adamw(
    parameters: Iterable[tuple[str, nn.Parameter]], numbers: Optimizer, *, dimensions: dict[str, int] | None = None
) -> torch.optim.AdamW:
    """AdamW of torch, its state made at once so that a checkpoint has somewhere to go; see ``parameter_groups``."""
    groups = parameter_groups(parameters, numbers, dimensions=dimensions)
    betas = (numbers.beta1, numbers.beta2)
    optimizer = torch.optim.AdamW(groups, lr=numbers.learning_rate, betas=betas, eps=numbers.epsilon, fused=True)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            moments = {kind: torch.zeros_like(parameter) for kind in KINDS}
            step = torch.zeros((), dtype=torch.float32, device=parameter.device)
            optimizer.state[parameter] = {"step": step, **moments}
    return optimizer


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """The rate of the next update."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def set_step(optimizer: Any, step: int) -> None:
    """Updates done so far, which Adam's bias correction counts."""
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] = torch.full_like(state["step"], step) if torch.is_tensor(state["step"]) else step
