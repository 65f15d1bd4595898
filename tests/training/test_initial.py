"""Freshly drawn weights: the same for every layout, and distributed as transformers distributes its own."""

from __future__ import annotations

import importlib
import math

import pytest
import torch

from launcher.recipe.schema import Model, ModelType
from launcher.training.decoder import build_on_meta
from launcher.training.families import FAMILIES, configuration_values
from launcher.training.initial import BLOCK_ELEMENTS, initial_rows
from tests.training.runs import tiny_recipe

CPU = torch.device("cpu")
SHAPE = Model(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=512, max_position_embeddings=64,
    intermediate_size=128, initializer_range=0.03,
)  # fmt: skip


def whole(name: str, shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    return initial_rows(name, shape, model=SHAPE, seed=seed, rows=(0, shape[0]), device=CPU)


@pytest.mark.parametrize("rows", [(0, 1), (5, 9), (100, 1000), (999, 1000)])
def test_some_rows_alone_are_those_of_the_whole(rows: tuple[int, int]) -> None:
    shape = (1000, BLOCK_ELEMENTS // 100)  # a hundred rows a block
    part = initial_rows("w", shape, model=SHAPE, seed=1, rows=rows, device=CPU)
    assert torch.equal(part, whole("w", shape)[rows[0] : rows[1]])


def test_seed_and_name_decide_the_values() -> None:
    first = whole("a", (4, 4))
    assert torch.equal(first, whole("a", (4, 4)))
    assert not torch.equal(first, whole("b", (4, 4)))
    assert not torch.equal(first, whole("a", (4, 4), seed=2))


@pytest.mark.parametrize("kind", list(FAMILIES))
def test_every_parameter_is_distributed_as_transformers_draws_it(kind: ModelType) -> None:
    experts = {"num_local_experts": 4} if kind == "mixtral" else {}
    model = {"model_type": kind, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512, **experts}
    recipe = tiny_recipe(model={**model, "initializer_range": 0.03})
    package = f"transformers.models.{kind}"
    family = FAMILIES[kind]
    configuration = getattr(importlib.import_module(f"{package}.configuration_{kind}"), family.configuration)
    torch.manual_seed(0)
    theirs = getattr(importlib.import_module(f"{package}.modeling_{kind}"), family.model)(
        configuration(**configuration_values(recipe.model))
    )
    names = [name for name, _ in build_on_meta(recipe).named_weights()]
    assert names == [name for name, _ in theirs.named_parameters()]
    for name, parameter in theirs.named_parameters():
        shape = tuple(parameter.shape)
        ours = initial_rows(name, shape, model=recipe.model, seed=3, rows=(0, shape[0]), device=CPU)
        count = ours.numel()
        deviation = 0.0 if parameter.ndim < 2 else float(parameter.detach().std())
        # A deviation of n values strays by 1/sqrt(2n) of itself, a mean by 1/sqrt(n): five times that is allowed.
        assert float(ours.std()) == pytest.approx(deviation, rel=10 / math.sqrt(2 * count)), name
        assert float(ours.mean()) == pytest.approx(
            float(parameter.detach().mean()), abs=10 * deviation / math.sqrt(count)
        ), name
