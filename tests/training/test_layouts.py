"""Whatever the layout, the same is learnt: losses and gradient norms of twenty steps against one process, in fp32."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from launcher.plan.planner import make_plan
from tests.training.layouts import ALONE, DEEPSPEED, EXPERTS, FSDP, MODELS, laid_out
from tests.training.runs import train_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from tests.training.layouts import Layout
    from tests.training.runs import Finished

TOLERANCE = 1e-5
NORM_TOLERANCE = 2e-4
"""A norm is a difference of nearly equal sums where the loss is flat."""
Group = dict[str, "Recipe"]
"""Recipes that should learn the same, and ``alone``, which divides nothing."""


def closeness(alone: Finished, other: Finished) -> tuple[float, float]:
    """Largest relative difference of losses and of gradient norms over all steps."""

    def differs(name: str) -> float:
        pairs = zip(alone.series(name), other.series(name), strict=True)
        return max(abs(a - b) / abs(a) for a, b in pairs)

    return differs("loss"), differs("gradient_norm")


def check(
    runs: Mapping[str, Finished], *, tolerance: float = TOLERANCE, norm_tolerance: float = NORM_TOLERANCE
) -> None:
    """Print how close each run came to ``alone``, and insist that every one came close."""
    alone = runs["alone"]
    found = {name: closeness(alone, run) for name, run in runs.items() if name != "alone"}
    print("\nlayout                              loss        gradient norm")
    for name, (loss, norm) in found.items():
        print(f"{name:<34}  {loss:.1e}     {norm:.1e}")
    expected = pytest.approx(alone.series("evaluation_loss"), rel=tolerance)
    assert {name for name, run in runs.items() if run.series("evaluation_loss") != expected} == set()
    assert {name: loss for name, (loss, _) in found.items() if loss > tolerance} == {}
    assert {name: norm for name, (_, norm) in found.items() if norm > norm_tolerance} == {}


def group(engine: str, layouts: Mapping[str, Layout], kind: str = "gpt2", **changes: Any) -> Group:
    """``alone``, and a recipe for each layout."""
    runs = {f"{engine}/{name}": laid_out(layout, engine, kind=kind, **changes) for name, layout in layouts.items()}
    return {"alone": laid_out(ALONE, "ddp", kind=kind, **changes), **runs}


def some(layouts: Mapping[str, Layout], names: Iterable[str]) -> dict[str, Layout]:
    return {name: layouts[name] for name in names}


def documents(folder: Path) -> dict[str, Any]:
    """A corpus of short documents, several to a sequence, and what makes attention respect them."""
    texts = [f"{number} sheep and {number * number} goats. " * (1 + number % 3) for number in range(90)]
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return {"train": (str(path),), "reset_at_documents": True, "validation_fraction": 0.2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Finished]]:
    """Every run of this module's short tests by group, those of one world size in the same processes."""
    folder = tmp_path_factory.mktemp("layouts")
    full, selective = ({"training": {"activation_checkpointing": what}} for what in ("full", "selective"))
    data = documents(folder)
    groups: dict[str, Group] = {
        "gpt2": group("fsdp", some(FSDP, ("hsdp", "tensor-context", "tensor-pipeline", "context-pipeline"))),
        "mixtral": group("fsdp", some(EXPERTS, ("expert-tensor", "expert-pipeline")), "mixtral", **full),
        "llama": group("fsdp", some(FSDP, ("interleaved", "zero-bubble-v")), "llama", **selective),
        "deepspeed": group("deepspeed", some(DEEPSPEED, ("sequence-pipeline", "context-zero3"))),
        "documents": group("fsdp", some(FSDP, ("context-pipeline",)), data=data)
        | {"deepspeed/context": laid_out(DEEPSPEED["context"], "deepspeed", data=data)}
        | {"mixed": laid_out(ALONE, "ddp", data={**data, "reset_at_documents": False})},
    }
    recipes = {f"{name}:{run}": recipe for name, members in groups.items() for run, recipe in members.items()}
    finished = train_many(recipes, folder)
    return {name: {run: finished[f"{name}:{run}"] for run in members} for name, members in groups.items()}


def test_gpt2_over_tensor_context_pipeline_and_data(runs: dict[str, dict[str, Finished]]) -> None:
    check(runs["gpt2"])


def test_mixtral_over_experts_with_every_layer_recomputed(runs: dict[str, dict[str, Finished]]) -> None:
    check(runs["mixtral"])


def test_llama_in_a_pipeline_whose_stages_take_turns_and_in_a_v(runs: dict[str, dict[str, Finished]]) -> None:
    check(runs["llama"])


def test_deepspeed_over_tensor_pipeline_and_context(runs: dict[str, dict[str, Finished]]) -> None:
    check(runs["deepspeed"])


def test_documents_in_a_sequence_do_not_see_each_other_in_any_layout(runs: dict[str, dict[str, Finished]]) -> None:
    apart = dict(runs["documents"])
    mixed = apart.pop("mixed")
    check(apart)
    assert closeness(apart["alone"], mixed)[0] > 1e-3


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_the_whole_matrix_of_fsdp(tmp_path: Path, kind: str, recompute: str) -> None:
    layouts = FSDP | EXPERTS if kind == "mixtral" else FSDP
    check(train_many(group("fsdp", layouts, kind, training={"activation_checkpointing": recompute}), tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3", "mixtral"])
def test_the_whole_matrix_of_deepspeed(tmp_path: Path, kind: str) -> None:
    check(train_many(group("deepspeed", DEEPSPEED, kind), tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", ["ddp", "fsdp", "deepspeed"])
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8"])
def test_low_precision_stays_close_to_fp32_in_every_engine(tmp_path: Path, engine: str, precision: str) -> None:
    layouts: dict[str, dict[str, Layout]] = {"ddp": {"two": (2, {})}, "fsdp": FSDP, "deepspeed": DEEPSPEED}
    asked = group(engine, layouts[engine], training={"precision": precision})
    low = {name: recipe for name, recipe in asked.items() if not make_plan(recipe).errors}
    runs = train_many({**low, "alone": laid_out(ALONE, "ddp")}, tmp_path)
    check(runs, tolerance=1e-2, norm_tolerance=0.5)
