"""A recipe with its remote paths replaced by where a job finds them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from launcher.recipe.schema import Recipe


def parse_mounts(arguments: Iterable[str]) -> dict[str, str]:
    """``URI=PATH`` each, as the job's command gives them; a URI may hold ``=``, a path does not."""
    return {uri: path for uri, _, path in (argument.rpartition("=") for argument in arguments)}


def mounted(recipe: Recipe, mounts: Mapping[str, str]) -> Recipe:
    """``recipe`` as the job reads it. Its digest and plan are those of the recipe before."""
    if not mounts:
        return recipe

    def placed(path: str) -> str:
        return mounts.get(path, path)

    def placed_if_given(path: str | None) -> str | None:
        return None if path is None else placed(path)

    data, checkpoint = recipe.data, recipe.checkpoint
    return replace(
        recipe,
        model=replace(recipe.model, init_from=placed_if_given(recipe.model.init_from)),
        data=replace(
            data,
            train=tuple(map(placed, data.train)),
            validation=tuple(map(placed, data.validation)),
            tokenizer=placed(data.tokenizer),
        ),
        checkpoint=replace(checkpoint, directory=placed_if_given(checkpoint.directory)),
    )
