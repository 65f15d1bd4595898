"""What the training loop asks of an engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe
    from launcher.training.batches import MicroBatch
    from launcher.training.decoder import Decoder
    from launcher.training.pieces import Piece
    from launcher.training.ranks import Ranks


class Engine(Protocol):
    """A model, its optimizer, and how both are divided among ranks."""

    @property
    def decoders(self) -> Sequence[Decoder]:
        """What this rank has of the model: all of it, or some stages."""
        ...

    def forward_backward(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Add the gradients of this rank's micro batches; return their mean loss, nats per token."""
        ...

    def step(self, learning_rate: float) -> float:
        """Clip the gradient, update the parameters, forget the gradient; return its global norm before clipping.

        With a norm that is not finite nothing is updated.
        """
        ...

    @property
    def tolerates_overflow(self) -> bool:
        """Whether a norm that is not finite is no reason to stop: fp16 training then lowers its loss scale."""
        ...

    def evaluate(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Mean loss of this rank's micro batches, without gradients."""
        ...

    def pieces(self) -> Iterable[Piece]:
        """What this rank holds of the training state: parameters and Adam's moments, in fp32."""
        ...

    def scalars(self) -> dict[str, float]:
        """What a checkpoint keeps besides pieces (the fp16 loss scale)."""
        ...

    def restored(self, step: int, scalars: dict[str, float]) -> None:
        """Called after ``pieces`` were filled with the state after ``step`` updates, with its ``scalars``."""
        ...

    def artifacts(self) -> dict[str, str]:
        """Files worth keeping with the run, by name: what the engine was configured with."""
        ...


def engine_maker(recipe: Recipe) -> Callable[[Recipe, Plan, Ranks], Engine]:
    """What makes the recipe's engine, with freshly drawn weights. Only its own module is imported, and that now."""
    module = import_module(f"launcher.training.engines.{recipe.parallelism.engine}")
    return cast("Callable[[Recipe, Plan, Ranks], Engine]", module.make_engine)
