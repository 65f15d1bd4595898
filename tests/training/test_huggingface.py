"""In from a Hugging Face folder and out to one: every model type, no key missing, the same logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from launcher.training.checkpoint.manifest import newest
from launcher.training.errors import CheckpointError
from launcher.training.families import make_configuration, make_model
from launcher.training.generate import evaluate, generate
from launcher.training.huggingface import export_huggingface, load_model, open_huggingface
from launcher.training.weights import find_folder, open_weights
from tests.training.layouts import EXPERTS, FSDP, MODELS, laid_out
from tests.training.runs import tiny_recipe, train, train_many

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from tests.training.layouts import Layout


def save_huggingface(recipe: Recipe, folder: Path) -> Any:
    """A model of the recipe's shape as transformers draws and saves it."""
    torch.manual_seed(7)
    model = make_model(make_configuration(recipe.model), recipe.model)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # ones and zeros would hide a norm or bias that went astray
            torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
    model.save_pretrained(folder)
    return model


def logits(model: Any) -> torch.Tensor:
    tokens = torch.arange(1, 33)[None] * 7 % 257
    with torch.no_grad():
        return model.eval()(tokens).logits  # type: ignore[no-any-return]


def untrained(kind: str, folder: Path, layout: Layout) -> Recipe:
    """One step at a learning rate of next to nothing: what comes in goes out."""
    adamw = {"learning_rate": 1e-20, "weight_decay": 0.0}
    training = {"train_steps": 1, "evaluation_batches": 0, "optimizer": adamw}
    return laid_out(layout, "fsdp", kind=kind, model={"init_from": str(folder)}, training=training)


LAYOUTS: dict[str, Layout] = {
    "gpt2": FSDP["tensor-pipeline"],
    "gpt_neox": FSDP["tensor"],
    "llama": FSDP["fsdp"],
    "mistral": FSDP["1f1b"],
    "qwen3": FSDP["sequence"],
    "mixtral": EXPERTS["expert-tensor"],
}


def test_every_model_type_goes_in_and_out_unchanged_through_a_divided_layout(tmp_path: Path) -> None:
    recipes, models = {}, {}
    for kind, layout in LAYOUTS.items():
        folder = tmp_path / "in" / kind
        recipes[kind] = untrained(kind, folder, layout)
        models[kind] = save_huggingface(recipes[kind], folder)
    runs = train_many(recipes, tmp_path / "runs")
    for kind, run in runs.items():
        found = newest(run.output / "checkpoints")
        assert found is not None
        out = tmp_path / "out" / kind
        export_huggingface(*found, recipes[kind].model, out, dtype=torch.float32)
        loaded, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True, dtype=torch.float32)
        assert not info["missing_keys"], kind
        assert not info["unexpected_keys"], kind
        torch.testing.assert_close(logits(loaded), logits(models[kind]), rtol=1e-5, atol=1e-5)


def test_a_large_model_leaves_in_several_files_with_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.training.huggingface.FILE_BYTES", 40_000)
    run = train(tiny_recipe(training={"train_steps": 1, "evaluation_batches": 0}), tmp_path / "run")
    found = newest(run.output / "checkpoints")
    assert found is not None
    recipe = tiny_recipe()
    written = export_huggingface(*found, recipe.model, tmp_path / "out")
    # 257 x 32 + 64 x 32 embeddings, 2 layers of 12 x 32^2 + 13 x 32, 64 of the last norm, two bytes each.
    assert written >= 2 * (257 * 32 + 64 * 32 + 2 * (12 * 32**2 + 13 * 32) + 64)
    assert len(list((tmp_path / "out").glob("model-*-of-*.safetensors"))) > 1
    _, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert (tmp_path / "out" / "tokenizer_config.json").is_file()


def test_a_folder_of_another_shape_is_refused_with_every_difference(tmp_path: Path) -> None:
    recipe = tiny_recipe(model=MODELS["llama"])
    save_huggingface(recipe, tmp_path)
    other = tiny_recipe(model={**MODELS["llama"], "num_attention_heads": 8, "norm_eps": 1e-6})
    with pytest.raises(CheckpointError) as error:
        open_huggingface(tmp_path, other.model)
    assert "num_attention_heads is 4, the recipe's 8" in str(error.value)
    assert "rms_norm_eps is 1e-05, the recipe's 1e-06" in str(error.value)


def test_the_hubs_older_names_are_read(tmp_path: Path) -> None:
    recipe = tiny_recipe()
    model = save_huggingface(recipe, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {name.removeprefix("transformer."): value for name, value in weights.items()}
    renamed["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)  # the causal mask that old files carry
    save_file(renamed, tmp_path / "model.safetensors")
    loaded = load_model(open_weights(tmp_path, recipe.model), recipe.model)
    torch.testing.assert_close(logits(loaded), logits(model))


def test_a_run_starts_from_the_weights_of_another_without_its_optimizer(tmp_path: Path) -> None:
    first = train(tiny_recipe(training={"train_steps": 6, "evaluation_batches": 0}), tmp_path / "first")
    recipe = tiny_recipe(
        model={"init_from": str(first.output / "checkpoints")}, training={"train_steps": 2, "evaluation_batches": 0}
    )
    second = train(recipe, tmp_path / "second")
    assert "weights from " in second.logs[0]
    assert second.completed["step"] == 2
    assert second.losses[0] < first.losses[0] - 0.2


def test_weights_that_are_nowhere_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no weights"):
        find_folder(str(tmp_path / "nothing"))


def test_a_checkpoint_writes_text_and_is_measured_on_held_out_text(tmp_path: Path) -> None:
    recipe = tiny_recipe()
    run = train(recipe, tmp_path / "run")
    checkpoints = run.output / "checkpoints"
    text = generate(checkpoints, "The ", tokens=12, seed=3)
    assert text.startswith("The ")
    assert len(text) > len("The ")
    assert text == generate(checkpoints, "The ", tokens=12, seed=3)
    (found,) = evaluate(checkpoints, recipe, cache=tmp_path / "cache", batches=1)
    # The same eight sequences as the run's own evaluation.
    assert found.loss == pytest.approx(run.completed["losses"]["evaluation"], rel=1e-5)
    assert (found.corpus, found.tokens) == ("demo", 8 * 32)
