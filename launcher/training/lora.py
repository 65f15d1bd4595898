"""LoRA (Hu et al., arXiv:2106.09685) by peft: adapters beside frozen weights, and their sum.

A linear layer computes W x + alpha / rank x B A x; W is frozen, A [rank, inputs] and B [outputs, rank] are trained.
Our names are peft's without the words ``base_layer`` and ``default``, so that W keeps its own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from launcher.errors import MissingExtraError
from launcher.plan.families.adapters import target_modules
from launcher.training.checkpoint.restore import fill
from launcher.training.pieces import Piece, whole
from launcher.training.ranks import LOW_PRECISION

if TYPE_CHECKING:
    from launcher.recipe.schema import Lora, Model, Recipe
    from launcher.training.checkpoint.restore import Shelf

DOWN, UP = "lora_A.weight", "lora_B.weight"
"""A and B, by the end of their names."""


def adapt(model: Any, recipe: Recipe) -> None:
    """Put the recipe's adapters into ``model`` (on the meta device); all other weights are frozen.

    What is frozen needs no fp32 copy: it is held in the precision that is computed in.

    Raises:
        MissingExtraError: peft is not installed.
    """
    try:
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise MissingExtraError(
            "training.lora needs peft", keys=("training.lora.rank",), suggestion="pip install 'launcher[local]'"
        ) from error
    inject_adapter_in_model(peft_configuration(recipe.model, recipe.training.lora), model, low_cpu_mem_usage=True)
    held = LOW_PRECISION.get(recipe.training.precision, torch.float32)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(held)


def peft_configuration(model: Model, lora: Lora) -> Any:
    """The adapters in peft's words: the ``adapter_config.json`` of a checkpoint that leaves."""
    from peft import LoraConfig

    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(target_modules(model, lora)),
        fan_in_fan_out=model.model_type == "gpt2",  # its Conv1D holds [inputs, outputs]
        task_type="CAUSAL_LM",
    )


def plain_name(name: str) -> str:
    """A parameter's name in the model without adapters; an adapter's beside it."""
    return name.replace(".base_layer.", ".").replace(".default.", ".")


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Adapters at rest, to be added to the weights they stand beside."""

    shelf: Shelf
    scaling: float
    """alpha / rank."""
    is_transposed: bool
    """Whether weights are [inputs, outputs] (GPT-2)."""

    @torch.no_grad()
    def add(self, piece: Piece) -> None:
        """Add to ``piece`` (a block of a weight) what its adapter, if it has one, makes of it."""
        stem = piece.name.removesuffix("weight")
        if (stem + DOWN, "parameter") not in self.shelf or not piece.name.endswith("weight"):
            return
        update = self.read(stem + UP) @ self.read(stem + DOWN)
        region, block = piece.region, (update.T if self.is_transposed else update).reshape(piece.region.shape)
        for axis, (first, count) in enumerate(zip(region.offset, region.size, strict=True)):
            block = block.narrow(axis, first, count)
        first, last = region.run or (0, block.numel())
        piece.tensor.view(-1).add_(block.reshape(-1)[first:last].to(piece.tensor.device), alpha=self.scaling)

    def read(self, name: str) -> torch.Tensor:
        """An adapter's matrix, whole, in fp32."""
        values = torch.empty(self.shelf[name, "parameter"][0].region.shape)
        fill([Piece(name=name, kind="parameter", region=whole(tuple(values.shape)), tensor=values)], self.shelf)
        return values


def open_adapters(shelf: Shelf, recipe: Recipe) -> Adapters:
    """The adapters among ``shelf``, a checkpoint of ``recipe``."""
    lora = recipe.training.lora
    return Adapters(shelf=shelf, scaling=lora.alpha / lora.rank, is_transposed=recipe.model.model_type == "gpt2")
