"""LoRA: what is trained, what is saved, and how it leaves for peft and for transformers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from launcher.plan.families.adapters import adapter_parameters
from launcher.plan.planner import bare_plan
from launcher.training.decoder import build_on_meta
from launcher.training.errors import CheckpointError
from launcher.training.evaluate import evaluate
from launcher.training.export.huggingface import export_huggingface, load_model
from launcher.training.export.peft import export_adapters
from launcher.training.families import make_configuration, make_model
from launcher.training.initial import initial_rows
from launcher.training.safetensors_file import read_header
from launcher.training.weights import open_checkpoint, open_weights
from tests.training.layouts import ALONE, FSDP, MODELS, laid_out
from tests.training.runs import tiny_recipe, train, train_many
from tests.training.test_huggingface import logits, save_huggingface

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from tests.training.layouts import Layout

LORA = {"rank": 4, "alpha": 8.0}
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's


def adapted(kind: str, folder: Path, layout: Layout, engine: str, **training: Any) -> Recipe:
    """Six steps of adapters beside a model that transformers saved in ``folder``."""
    changes = {"train_steps": 6, "lora": LORA, **training}
    return laid_out(layout, engine, kind=kind, model={"init_from": str(folder)}, training=changes)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """A model of every type to start from."""
    found = {kind: tmp_path / "in" / kind for kind in MODELS}
    for kind, folder in found.items():
        save_huggingface(tiny_recipe(model={"num_hidden_layers": 4, **MODELS[kind]}), folder)
    return found


@pytest.mark.parametrize("kind", MODELS)
def test_the_plan_counts_the_adapters_that_peft_makes(kind: str) -> None:
    recipe = tiny_recipe(model=MODELS[kind], training={"lora": LORA})
    trained = [weight.numel() for _, weight in build_on_meta(recipe).named_weights() if weight.requires_grad]
    assert adapter_parameters(recipe.model, recipe.training.lora) == sum(trained) > 0


def test_adapters_begin_as_those_of_peft() -> None:
    recipe = tiny_recipe(model={"hidden_size": 256, **MODELS["llama"]})
    theirs = get_peft_model(
        make_model(make_configuration(recipe.model), recipe.model), LoraConfig(r=64, target_modules=["q_proj"])
    )
    down, up = (
        theirs.get_parameter(f"base_model.model.model.layers.0.self_attn.q_proj.{part}.default.weight").detach()
        for part in ("lora_A", "lora_B")
    )
    name = "model.layers.0.self_attn.q_proj."
    ours = [
        initial_rows(
            name + part, tuple(matrix.shape), model=recipe.model, seed=1, rows=(0, len(matrix)),
            device=torch.device("cpu"),
        )
        for part, matrix in (("lora_A.weight", down), ("lora_B.weight", up))
    ]  # fmt: skip
    assert not up.any()
    assert not ours[1].any()
    assert float(ours[0].std()) == pytest.approx(float(down.std()), rel=0.02)
    assert float(ours[0].abs().max()) == pytest.approx(float(down.abs().max()), rel=0.01)


def test_every_model_type_learns_in_adapters_that_peft_and_transformers_load(
    tmp_path: Path, folders: dict[str, Path]
) -> None:
    recipes = {kind: adapted(kind, folder, ALONE, "ddp") for kind, folder in folders.items()}
    for kind, run in train_many(recipes, tmp_path / "runs").items():
        assert run.losses[-1] < run.losses[0], kind
        checkpoint = open_checkpoint(run.output / "checkpoints")
        merged = load_model(checkpoint.weights, checkpoint.recipe.model)
        assert float((logits(merged) - logits(load(folders[kind]))).abs().max()) > 1e-3, kind
        export_adapters(checkpoint.weights, checkpoint.recipe, tmp_path / "out" / kind)
        export_huggingface(checkpoint.weights, checkpoint.recipe.model, tmp_path / "merged" / kind, dtype="float32")
        with_adapters = PeftModel.from_pretrained(load(folders[kind]), tmp_path / "out" / kind)
        assert set(load_file(tmp_path / "out" / kind / "adapter_model.safetensors")) == {
            name.replace(".default", "") for name, _ in with_adapters.named_parameters() if "lora_" in name
        }
        for theirs in (with_adapters, load(tmp_path / "merged" / kind)):
            torch.testing.assert_close(logits(theirs), logits(merged), rtol=1e-5, atol=1e-5, msg=kind)


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize(
    "sharded", [("fsdp", "context"), pytest.param(("fsdp-zero2", "fsdp-zero0", "hsdp"), marks=pytest.mark.slow)]
)
def test_every_layout_that_takes_adapters_learns_the_same(
    sharded: tuple[str, ...], tmp_path: Path, folders: dict[str, Path]
) -> None:
    layouts: dict[str, tuple[Layout, str]] = {
        "alone": (ALONE, "ddp"),
        "ddp": ((2, {}), "ddp"),
        **{name: (FSDP[name], "fsdp") for name in sharded},
    }
    recipes = {
        name: adapted("qwen3", folders["qwen3"], layout, engine, activation_checkpointing="full")
        for name, (layout, engine) in layouts.items()
    }
    runs = train_many(recipes, tmp_path / "runs")
    for name, run in runs.items():
        assert run.losses == pytest.approx(runs["alone"].losses, rel=1e-5), name


def test_checkpoints_hold_adapters_alone_and_resume_beside_the_same_weights(
    tmp_path: Path, folders: dict[str, Path]
) -> None:
    recipe = adapted("llama", folders["llama"], (2, {}), "ddp")
    unbroken = train(recipe, tmp_path / "unbroken")
    files = (unbroken.output / "checkpoints").glob("step-*/rank-*.safetensors")
    tensors = [each for file in files for each in read_header(file)[0].items()]
    assert {name.partition("/")[0] for name, _ in tensors} == {"parameter", "exp_avg", "exp_avg_sq"}
    assert all(".lora_" in name for name, _ in tensors)
    assert bare_plan(recipe).storage.bytes_per_checkpoint == sum(4 * prod(tensor.shape) for _, tensor in tensors)
    first = train(adapted("llama", folders["llama"], (2, {}), "ddp", train_steps=3), tmp_path / "first")
    resumed = train(
        adapted("llama", folders["llama"], FSDP["fsdp"], "fsdp"), tmp_path / "second",
        resume_from=first.output / "checkpoints",
    )  # fmt: skip
    assert resumed.losses[-1] < unbroken.losses[2]
    (found,) = evaluate(
        open_checkpoint(resumed.output / "checkpoints"), recipe.data, cache=tmp_path / "cache", batches=1
    )
    assert found.loss == pytest.approx(resumed.completed["losses"]["evaluation"], rel=1e-5)


def test_bf16_holds_frozen_weights_in_bf16(tmp_path: Path, folders: dict[str, Path]) -> None:
    recipe = tiny_recipe(model=MODELS["llama"], training={"lora": LORA, "precision": "bf16"})
    held = {weight.requires_grad: weight.dtype for _, weight in build_on_meta(recipe).named_weights()}
    assert held == {True: torch.float32, False: torch.bfloat16}
    recipes = {
        engine: adapted("llama", folders["llama"], (2, {"zero_stage": stage}), engine, precision="bf16")
        for engine, stage in (("ddp", 0), ("fsdp", 3))
    }
    runs = train_many(recipes, tmp_path / "runs")
    for run in runs.values():
        assert run.losses[-1] < run.losses[0]
    assert runs["ddp"].losses == pytest.approx(runs["fsdp"].losses, rel=2e-3)  # bf16 has eight bits


def test_a_run_of_all_weights_starts_from_adapters_and_what_they_stand_beside(
    tmp_path: Path, folders: dict[str, Path]
) -> None:
    first = train(adapted("gpt2", folders["gpt2"], ALONE, "ddp"), tmp_path / "first")
    checkpoints = first.output / "checkpoints"
    still = {"train_steps": 1, "optimizer": {"learning_rate": 1e-20, "weight_decay": 0.0}}
    source = {"init_from": str(checkpoints)}
    recipe = laid_out((2, {"zero_stage": 1}), "deepspeed", model=source, training=still)
    second = train(recipe, tmp_path / "second")
    assert second.completed["losses"]["evaluation"] == pytest.approx(first.completed["losses"]["evaluation"], rel=1e-5)


def test_what_has_no_adapters_or_no_base_cannot_leave_as_such(tmp_path: Path) -> None:
    plain = train(tiny_recipe(training={"train_steps": 1, "evaluation_batches": 0}), tmp_path / "plain")
    checkpoint = open_checkpoint(plain.output / "checkpoints")
    with pytest.raises(CheckpointError, match="whole weights and no adapters"):
        export_adapters(checkpoint.weights, checkpoint.recipe, tmp_path / "out")
    drawn = train(tiny_recipe(training={"train_steps": 1, "lora": LORA}), tmp_path / "drawn")
    with pytest.raises(CheckpointError, match="drawn and never saved"):
        open_checkpoint(drawn.output / "checkpoints")
    base = str(plain.output / "checkpoints")
    assert open_weights(drawn.output / "checkpoints", tiny_recipe().model, base=base).adapters
