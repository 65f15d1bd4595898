"""AdamW over what a rank holds, whatever it is part of: sums, norm, clipping, loss scale and state.

Works on plain local tensors: an update touches no collective but those named here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.tensor import DTensor

from launcher.training.optimizer import KINDS, make_adamw, set_learning_rate, set_step
from launcher.training.pieces import Piece, Region

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn

    from launcher.recipe.schema import Training
    from launcher.training.pieces import Kind

FIRST_LOSS_SCALE = 2.0**16
GROWTH_STEPS = 2000
"""Updates without an overflow after which the fp16 loss scale doubles (torch.amp.GradScaler's default)."""
SMALLEST_LOSS_SCALE = 2.0**-14
_SLACK = 1e-6
"""Added to the norm before dividing, as ``torch.nn.utils.clip_grad_norm_`` does."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Holding:
    """A parameter of this rank, and who else has what of it."""

    name: str
    parameter: nn.Parameter
    """What the model computes with: whole, or sharded as a DTensor."""
    region: Region
    """Which block of the whole parameter the local part is."""
    copies: int = 1
    """Ranks that hold this very block, this one included."""
    is_written: bool = True
    """Whether this rank writes it to checkpoints."""
    is_counted: bool = True
    """Whether it counts for the norm: a second copy under another rank's name does not."""
    factor: float = 1.0
    """What its gradient is still to be multiplied by."""
    summed_over: tuple[dist.ProcessGroup, ...] = ()
    """Ranks that each have a part of its gradient."""

    @property
    def is_trained(self) -> bool:
        """Whether it has a gradient."""
        return self.parameter.requires_grad


class LocalOptimizer:
    """One rank's optimizer."""

    def __init__(self, holdings: Iterable[Holding], training: Training) -> None:
        self.training = training
        self.holdings = list(holdings)
        self.locals = {id(held): _local_parameter(held) for held in self.holdings}
        trained = [(held.name, self.locals[id(held)]) for held in self.holdings if held.is_trained]
        named = [(name, local) for name, local in trained if local.numel()]
        dimensions = {held.name: len(held.region.shape) for held in self.holdings}
        self.optimizer = make_adamw(named, training.optimizer, dimensions=dimensions)
        self.loss_scale = FIRST_LOSS_SCALE if training.precision == "fp16" else 1.0
        self.good_steps = 0

    def step(self, learning_rate: float) -> float:
        """Sum partial gradients, clip, update, forget; the global norm before clipping. See ``Engine.step``."""
        gradients = self._gradients()
        norm = self._norm(gradients) / self.loss_scale
        if math.isfinite(norm):
            limit = self.training.gradient_clipping
            factor = min(1.0, limit / (norm + _SLACK)) if limit else 1.0
            self._update(gradients, learning_rate, factor / self.loss_scale)
        self._adjust_scale(is_good=math.isfinite(norm))
        for held in self.holdings:
            held.parameter.grad = None
        return norm

    @property
    def tolerates_overflow(self) -> bool:
        """Whether a gradient that is not finite only asks for a smaller loss scale."""
        return self.training.precision == "fp16" and self.loss_scale > SMALLEST_LOSS_SCALE

    def pieces(self) -> Iterator[Piece]:
        """What this rank holds: fp32 parameters and Adam's moments."""
        for held in self.holdings:
            local = self.locals[id(held)]
            if not local.numel():
                continue
            state = self.optimizer.state[local] if held.is_trained else {}
            states: dict[Kind, torch.Tensor] = {"parameter": local.data}
            states.update((kind, state[kind]) for kind in KINDS if kind in state)
            for kind, tensor in states.items():
                yield Piece(
                    name=held.name, kind=kind, region=held.region, tensor=tensor,
                    is_written=held.is_written and held.is_trained, is_trained=held.is_trained,
                )  # fmt: skip

    def restored(self, step: int, scalars: dict[str, float]) -> None:
        """Go on after ``step`` updates."""
        set_step(self.optimizer, step)
        self.loss_scale = scalars.get("loss_scale", self.loss_scale)
        self.good_steps = int(scalars.get("good_steps", 0))

    def scalars(self) -> dict[str, float]:
        """What a checkpoint keeps besides tensors."""
        if self.training.precision != "fp16":
            return {}
        return {"loss_scale": self.loss_scale, "good_steps": float(self.good_steps)}

    def _gradients(self) -> list[torch.Tensor | None]:
        """Local gradients, by holding, summed over the ranks that have parts of them."""
        gradients = [_local(held.parameter.grad) if held.parameter.grad is not None else None for held in self.holdings]
        for held, gradient in zip(self.holdings, gradients, strict=True):
            if held.factor != 1.0 and gradient is not None:
                gradient.mul_(held.factor)
        parts: dict[dist.ProcessGroup, list[torch.Tensor]] = defaultdict(list)
        for held, gradient in zip(self.holdings, gradients, strict=True):
            for group in held.summed_over if held.is_trained else ():
                assert gradient is not None, held.name
                parts[group].append(gradient)
        self._join_twins(gradients)
        for group, tensors in parts.items():
            flat = _flatten_dense_tensors(tensors)
            dist.all_reduce(flat, group=group)
            for tensor, total in zip(tensors, _unflatten_dense_tensors(flat, tensors), strict=True):
                tensor.copy_(total)
        return gradients

    def _join_twins(self, gradients: list[torch.Tensor | None]) -> None:
        """Where two stages of this rank hold one parameter (tied embeddings), both get the sum of its gradients."""
        by_name: dict[str, list[torch.Tensor]] = defaultdict(list)
        for held, gradient in zip(self.holdings, gradients, strict=True):
            if gradient is not None:
                by_name[held.name].append(gradient)
        for twins in by_name.values():
            if len(twins) > 1:
                total = sum(twins[1:], start=twins[0])
                for twin in twins:
                    twin.copy_(total)

    def _norm(self, gradients: list[torch.Tensor | None]) -> float:
        """Global L2 norm: each element of the model once, however many ranks hold it."""
        by_copies: dict[int, list[torch.Tensor]] = defaultdict(list)
        for held, gradient in zip(self.holdings, gradients, strict=True):
            if gradient is not None and gradient.numel() and held.is_counted:
                by_copies[held.copies].append(gradient)
        device = self.holdings[0].parameter.device
        total = torch.zeros((), dtype=torch.float64, device=device)
        for copies, tensors in by_copies.items():
            norms = torch.stack(torch._foreach_norm(tensors))
            total += norms.double().square().sum() / copies
        dist.all_reduce(total)
        return float(total.sqrt())

    def _update(self, gradients: list[torch.Tensor | None], learning_rate: float, factor: float) -> None:
        present = [gradient for gradient in gradients if gradient is not None and gradient.numel()]
        if factor != 1.0 and present:
            torch._foreach_mul_(present, factor)
        for held, gradient in zip(self.holdings, gradients, strict=True):
            self.locals[id(held)].grad = gradient
        set_learning_rate(self.optimizer, learning_rate)
        self.optimizer.step()

    def _adjust_scale(self, *, is_good: bool) -> None:
        if self.training.precision != "fp16":
            return
        self.good_steps = self.good_steps + 1 if is_good else 0
        if not is_good:
            self.loss_scale /= 2
        elif self.good_steps == GROWTH_STEPS:
            self.loss_scale, self.good_steps = self.loss_scale * 2, 0


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _local_parameter(held: Holding) -> nn.Parameter:
    """The rank's own part, sharing memory with what the model computes with."""
    return torch.nn.Parameter(_local(held.parameter.detach()), requires_grad=held.is_trained)
