"""Starting from weights that exist: a Hugging Face folder, or a checkpoint of ours, without its optimizer state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launcher.home import runs_folder
from launcher.recipe import codec
from launcher.training.checkpoint.manifest import damage, newest
from launcher.training.checkpoint.restore import fill, open_shelf
from launcher.training.errors import CheckpointError
from launcher.training.huggingface import is_huggingface, open_huggingface

if TYPE_CHECKING:
    from launcher.recipe.schema import Model, Recipe
    from launcher.training.checkpoint.manifest import Manifest
    from launcher.training.checkpoint.restore import Shelf
    from launcher.training.engines.engine import Engine

LOCAL = "local:"
"""Handle of a run on this machine."""


def fill_weights(engine: Engine, model: Model) -> Path:
    """Give ``engine`` the weights that ``model.init_from`` names; returns the folder they came from.

    Raises:
        CheckpointError: there are none, or they are of another model.
    """
    assert model.init_from
    folder = find_folder(model.init_from)
    shelf = open_weights(folder, model)
    fill((piece for piece in engine.pieces() if piece.kind == "parameter"), shelf)
    engine.restored(0, {})
    return folder


def find_folder(source: str) -> Path:
    """The folder behind a path or a run's handle: of a Hugging Face model, or of our newest checkpoint."""
    folder = runs_folder() / source.removeprefix(LOCAL) / "output" / "checkpoints" if source.startswith(LOCAL) else None
    folder = folder or Path(source)
    if is_huggingface(folder):
        return folder
    found = newest(folder)
    if found is None:
        raise CheckpointError(
            f"{source} holds no weights", keys=("model.init_from",),
            allowed="a Hugging Face folder with config.json and *.safetensors, a checkpoint folder, or local:RUN",
        )  # fmt: skip
    return found[0]


def open_weights(folder: Path, model: Model) -> Shelf:
    """The weights in a Hugging Face folder or a checkpoint, as ``fill`` reads them; damage is an error."""
    if is_huggingface(folder):
        return open_huggingface(folder, model)
    found = newest(folder)
    assert found is not None
    fault = damage(folder, found[1].files)
    if fault:
        raise CheckpointError(f"checkpoint {folder} is damaged: {fault}")
    return open_shelf(folder / file.name for file in found[1].files)


def recipe_of(manifest: Manifest) -> Recipe:
    """The recipe a checkpoint was written under, as far as the weights and their meaning need it."""
    needed = ("name", "model", "training", "data")  # other sections may hold secrets, which were taken out
    return codec.decode({section: manifest.recipe[section] for section in needed})
