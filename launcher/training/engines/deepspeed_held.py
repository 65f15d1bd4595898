"""What both of DeepSpeed's engines do alike: update, and open what they hold to checkpoints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from launcher.training.engines.deepspeed_ranks import global_norm, written_once
from launcher.training.optimizer import set_learning_rate, set_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.recipe.schema import Recipe
    from launcher.training.decoder import Decoder
    from launcher.training.engines.deepspeed_state import State
    from launcher.training.parallel.groups import Groups
    from launcher.training.pieces import Piece


class DeepSpeedHeld:
    """A model and optimizer owned by DeepSpeed."""

    engine: Any
    """What ``deepspeed.initialize`` gives back."""
    state: State
    """The fp32 state inside its optimizer."""

    def __init__(self, recipe: Recipe, decoder: Decoder, config: dict[str, Any], groups: Groups) -> None:
        self.recipe, self.decoder, self.config, self.groups = recipe, decoder, config, groups
        self.decoders = (decoder,)

    def step(self, learning_rate: float) -> float:
        """See Engine. ZeRO computes the norm inside its step; fp32 training without ZeRO does not tell it."""
        set_learning_rate(self.engine.optimizer, learning_rate)
        is_plain = self.engine.optimizer is self.state.optimizer
        norm = global_norm(self.decoder, self.groups) if is_plain else None
        self._update()
        return float(self.engine.get_global_grad_norm() if norm is None else norm)

    def _update(self) -> None:
        self.engine.step()

    @property
    def tolerates_overflow(self) -> bool:
        """See Engine. DeepSpeed lowers the scale itself, and raises when it cannot go lower."""
        return self.recipe.training.precision == "fp16"

    def pieces(self) -> Iterable[Piece]:
        """See Engine."""
        return written_once(self.state.pieces(), self.decoder, self.groups, is_sharded=self.state.is_sharded)

    def scalars(self) -> dict[str, float]:
        """See Engine."""
        if self.recipe.training.precision != "fp16":
            return {}
        return {"loss_scale": float(self.engine.optimizer.loss_scale)}

    def restored(self, step: int, scalars: dict[str, float]) -> None:
        """See Engine."""
        self.state.refresh()
        set_step(self.state.optimizer, step)
        if "loss_scale" in scalars:
            self.engine.optimizer.loss_scale = scalars["loss_scale"]

    def artifacts(self) -> dict[str, str]:
        """See Engine."""
        return {"deepspeed_config.json": json.dumps(self.config, indent=2) + "\n"}
