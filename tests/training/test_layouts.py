"""Whatever the layout, the same is learnt: losses and gradient norms of twenty steps against one process, in fp32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.training.layouts import ALONE, DEEPSPEED, EXPERTS, FSDP, MODELS, Layout, laid_out
from tests.training.runs import train, train_many

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from tests.training.runs import Finished

TOLERANCE = 1e-5
NORM_TOLERANCE = 2e-4
"""A norm is a difference of nearly equal sums where the loss is flat."""


def closeness(alone: Finished, other: Finished) -> tuple[float, float]:
    """Largest relative difference of losses and of gradient norms over all steps."""

    def differs(name: str) -> float:
        pairs = zip(alone.series(name), other.series(name), strict=True)
        return max(abs(a - b) / abs(a) for a, b in pairs)

    return differs("loss"), differs("gradient_norm")


def check(recipes: dict[str, Recipe], folder: Path) -> None:
    """Run all, print how close each came to ``alone``, and insist that every one came close."""
    runs = train_many(recipes, folder)
    found = {name: closeness(runs["alone"], run) for name, run in runs.items() if name != "alone"}
    print("\nlayout                              loss        gradient norm")
    for name, (loss, norm) in found.items():
        print(f"{name:<34}  {loss:.1e}     {norm:.1e}")
    for name, run in runs.items():
        expected = runs["alone"].series("evaluation_loss")
        assert run.series("evaluation_loss") == pytest.approx(expected, rel=TOLERANCE), name
    assert {name: loss for name, (loss, _) in found.items() if loss > TOLERANCE} == {}
    assert {name: norm for name, (_, norm) in found.items() if norm > NORM_TOLERANCE} == {}


def fsdp(names: Iterable[str], model: str, **changes: Any) -> dict[str, Recipe]:
    layouts = FSDP | EXPERTS
    runs = {f"fsdp/{name}": laid_out(layouts[name], "fsdp", model=model, **changes) for name in names}
    return {"alone": laid_out(ALONE, "ddp", model=model, **changes), **runs}


def test_gpt2_over_tensor_context_pipeline_and_data(tmp_path: Path) -> None:
    check(fsdp(("hsdp", "tensor-context", "tensor-pipeline", "context-pipeline"), "gpt2"), tmp_path)


def test_mixtral_over_experts_with_every_layer_recomputed(tmp_path: Path) -> None:
    recomputed = {"training": {"activation_checkpointing": "full"}}
    check(fsdp(("expert-tensor", "expert-pipeline"), "mixtral", **recomputed), tmp_path)


def test_llama_in_a_pipeline_whose_stages_take_turns_and_in_a_v(tmp_path: Path) -> None:
    recomputed = {"training": {"activation_checkpointing": "selective"}}
    check(fsdp(("interleaved", "zero-bubble-v"), "llama", **recomputed), tmp_path)


def test_deepspeed_in_a_pipeline_of_tensor_ranks(tmp_path: Path) -> None:
    alone = train(laid_out(ALONE, "ddp"), tmp_path / "alone")
    divided = train(laid_out(DEEPSPEED["tensor-pipeline"], "deepspeed"), tmp_path / "divided")
    loss, norm = closeness(alone, divided)
    assert loss < TOLERANCE
    assert norm < NORM_TOLERANCE


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("model", list(MODELS))
def test_the_whole_matrix_of_fsdp(tmp_path: Path, model: str, recompute: str) -> None:
    names = (*FSDP, *EXPERTS) if model == "mixtral" else tuple(FSDP)
    check(fsdp(names, model, training={"activation_checkpointing": recompute}), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["gpt2", "llama", "qwen3", "mixtral"])
def test_the_whole_matrix_of_deepspeed(tmp_path: Path, model: str) -> None:
    alone = train(laid_out(ALONE, "ddp", model=model), tmp_path / "alone")
    found = {}
    for name, layout in DEEPSPEED.items():
        run = train(laid_out(layout, "deepspeed", model=model), tmp_path / name)
        found[name] = closeness(alone, run)
        print(f"{model} deepspeed/{name:<18} loss {found[name][0]:.1e} norm {found[name][1]:.1e}")
    assert {name: close for name, close in found.items() if close[0] > TOLERANCE or close[1] > NORM_TOLERANCE} == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", ["ddp", "fsdp", "deepspeed"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_stays_close_in_every_engine(tmp_path: Path, engine: str, precision: str) -> None:
    engines: dict[str, dict[str, Layout]] = {"ddp": {"ddp": (2, {})}, "fsdp": FSDP, "deepspeed": DEEPSPEED}
    layouts = engines[engine]
    alone = train(laid_out(ALONE, "ddp"), tmp_path / "alone")
    found = {}
    for name, layout in layouts.items():
        run = train(laid_out(layout, engine, training={"precision": precision}), tmp_path / name)
        found[name] = closeness(alone, run)[0]
        print(f"{precision} {engine}/{name:<20} loss {found[name]:.1e}")
    assert {name: loss for name, loss in found.items() if loss > 1e-2} == {}
