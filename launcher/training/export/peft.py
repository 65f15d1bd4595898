"""A folder of adapters that ``PeftModel.from_pretrained`` puts beside the model they were trained on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from launcher.training.checkpoint.storage import write_whole
from launcher.training.errors import CheckpointError
from launcher.training.lora import peft_configuration
from launcher.training.safetensors_file import Waiting, chunks

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from launcher.training.weights import Weights

_PREFIX = "base_model.model."
"""Of every name in an adapter file: peft's wrapper, and in it the model (peft ``save_and_load.py``)."""


def export_adapters(weights: Weights, recipe: Recipe, folder: Path) -> int:
    """Write the adapters that were trained last, in fp32; returns their bytes.

    Raises:
        CheckpointError: the checkpoint has none.
    """
    if not weights.adapters:
        raise CheckpointError(
            "the checkpoint holds whole weights and no adapters", keys=("training.lora.rank",),
            suggestion="--format huggingface",
        )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    adapters = weights.adapters[-1]
    tensors = {
        _PREFIX + name: Waiting(dtype=torch.float32, shape=entries[0].region.shape, values=partial(adapters.read, name))
        for (name, kind), entries in adapters.shelf.items()
        if kind == "parameter"
    }
    configuration = peft_configuration(recipe.model, recipe.training.lora)
    configuration.base_model_name_or_path = recipe.model.init_from
    configuration.inference_mode = True
    configuration.save_pretrained(folder)
    return write_whole(folder / "adapter_model.safetensors", partial(chunks, tensors, {"format": "pt"})).bytes
