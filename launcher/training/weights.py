"""Weights that exist: a Hugging Face folder, or a checkpoint of ours, whole or with adapters beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launcher.home import runs_folder
from launcher.recipe import codec
from launcher.training.checkpoint.manifest import damage, newest
from launcher.training.checkpoint.restore import fill, open_shelf
from launcher.training.errors import CheckpointError
from launcher.training.huggingface import TOKENIZER, is_huggingface, open_huggingface
from launcher.training.lora import DOWN, UP, open_adapters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from launcher.recipe.schema import Model, Recipe
    from launcher.training.checkpoint.manifest import Manifest
    from launcher.training.checkpoint.restore import Shelf
    from launcher.training.engines.engine import Engine
    from launcher.training.lora import Adapters
    from launcher.training.pieces import Piece

LOCAL = "local:"
"""Handle of a run on this machine."""


class Start(NamedTuple):
    """What a run began with."""

    folder: Path
    """Where its weights came from."""
    updates: int
    """Updates behind Adam's moments that came along; 0 without."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A model's weights at rest, and what is added to them as they are read."""

    shelf: Shelf
    adapters: tuple[Adapters, ...] = ()

    def fill(self, pieces: Iterable[Piece]) -> None:
        """Fill ``pieces`` in place, each reading its own part alone.

        Raises:
            CheckpointError: a parameter is missing, incomplete, or of another shape.
        """
        pieces = tuple(pieces)
        fill(pieces, self.shelf)
        for adapters in self.adapters:
            for piece in pieces:
                adapters.add(piece)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A run's newest checkpoint, opened for whoever wants its weights alone."""

    folder: Path
    step: int
    recipe: Recipe
    """It was written under, as far as the weights and their meaning need it."""
    weights: Weights

    @property
    def tokenizer(self) -> Path | None:
        """Folder of the run's tokenizer; None where the corpus was tokenized elsewhere."""
        folder = self.folder.parent / TOKENIZER
        return folder if folder.is_dir() else None


def open_checkpoint(directory: Path, *, base: str | None = None) -> Checkpoint:
    """The newest checkpoint in ``directory``, which may be one itself; ``base`` as ``open_weights`` takes it.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    found = newest(directory)
    if found is None:
        raise CheckpointError(f"there is no whole checkpoint in {directory}")
    folder, manifest = found
    recipe = recipe_of(manifest)
    weights = open_weights(folder, recipe.model, base=base)
    return Checkpoint(folder=folder, step=manifest.step, recipe=recipe, weights=weights)


def begin_from(engine: Engine, model: Model) -> Start:
    """Give ``engine`` what ``model.init_from`` names: weights, and Adam's moments if ``init_optimizer`` asks for them.

    Raises:
        CheckpointError: there is no such thing, or it is of another model.
    """
    assert model.init_from
    folder = find_folder(model.init_from)
    pieces = [piece for piece in engine.pieces() if not piece.name.endswith((DOWN, UP))]
    open_weights(folder, model).fill(piece for piece in pieces if piece.kind == "parameter")
    updates = _take_moments(folder, [piece for piece in pieces if piece.kind != "parameter"], model)
    engine.restored(updates, {})
    return Start(folder, updates)


def _take_moments(folder: Path, moments: list[Piece], model: Model) -> int:
    """Fill Adam's moments if the recipe asks for them; the updates behind them."""
    if not model.init_optimizer:
        return 0
    found = None if is_huggingface(folder) else newest(folder)
    if found is None:
        keys = ("model.init_optimizer", "model.init_from")
        raise CheckpointError(f"{folder} holds weights alone: Adam's moments are in checkpoints of ours", keys=keys)
    fill(moments, open_shelf(folder / file.name for file in found[1].files))
    return found[1].updates


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


def open_weights(folder: Path, model: Model, *, base: str | None = None) -> Weights:
    """The weights in a Hugging Face folder or a checkpoint; damage is an error.

    ``base``: where the frozen weights of a LoRA checkpoint lie, if not where its own recipe says.
    """
    if is_huggingface(folder):
        return Weights(shelf=open_huggingface(folder, model))
    found = newest(folder)
    assert found is not None
    checkpoint, manifest = found
    fault = damage(checkpoint, manifest.files)
    if fault:
        raise CheckpointError(f"checkpoint {checkpoint} is damaged: {fault}")
    shelf, recipe = open_shelf(checkpoint / file.name for file in manifest.files), recipe_of(manifest)
    if not recipe.training.lora.rank:
        return Weights(shelf=shelf)
    below = _base_weights(checkpoint, recipe, base)
    return Weights(shelf=below.shelf, adapters=(*below.adapters, open_adapters(shelf, recipe)))


def _base_weights(folder: Path, recipe: Recipe, base: str | None) -> Weights:
    """What a LoRA checkpoint's adapters stand beside; itself perhaps a LoRA checkpoint."""
    source = base or recipe.model.init_from
    if source is None:
        what = f"{folder} holds adapters alone, beside weights that were drawn and never saved"
        raise CheckpointError(what, keys=("training.lora.rank", "model.init_from"))
    return open_weights(find_folder(source), recipe.model)


def recipe_of(manifest: Manifest) -> Recipe:
    """The recipe a checkpoint was written under, as far as the weights and their meaning need it."""
    needed = ("name", "model", "training", "data")  # other sections may hold secrets, which were taken out
    return codec.decode({section: manifest.recipe[section] for section in needed})
