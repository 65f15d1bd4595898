"""In from a Hugging Face folder and out to one: every model type, no key missing, the same logits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from launcher.training.checkpoint.manifest import newest
from launcher.training.checkpoint.restore import fill
from launcher.training.data.corpus import open_corpora
from launcher.training.errors import CheckpointError
from launcher.training.evaluate import evaluate
from launcher.training.export.huggingface import export_huggingface, load_model
from launcher.training.families import make_configuration, make_model
from launcher.training.generate import generate
from launcher.training.huggingface import open_huggingface
from launcher.training.parallel.groups import Axis
from launcher.training.parallel.tensor import cut
from launcher.training.pieces import Piece
from launcher.training.safetensors_file import Stored
from launcher.training.weights import find_folder, open_checkpoint, open_weights
from tests.training.layouts import EXPERTS, FSDP, MODELS, laid_out
from tests.training.runs import Run, tiny_recipe, train, train_many

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from launcher.training.checkpoint.manifest import Manifest
    from tests.training.layouts import Layout
    from tests.training.runs import Finished


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
        loaded = exported(run, tmp_path / "out" / kind)
        torch.testing.assert_close(logits(loaded), logits(models[kind]), rtol=1e-5, atol=1e-5)


def exported(run: Finished, folder: Path) -> Any:
    """The run's checkpoint as transformers loads it from the folder we write."""
    checkpoint = open_checkpoint(run.output / "checkpoints")
    model = checkpoint.recipe.model
    export_huggingface(checkpoint.weights, model, folder, dtype="float32", tokenizer=checkpoint.tokenizer)
    loaded, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not info["missing_keys"], model.model_type
    assert not info["unexpected_keys"], model.model_type
    return loaded


def test_what_was_trained_here_has_the_same_loss_in_transformers(tmp_path: Path) -> None:
    recipes = {}
    for kind in ("gpt2", "llama", "qwen3", "mixtral"):
        save_huggingface(tiny_recipe(model={"num_hidden_layers": 4, **MODELS[kind]}), tmp_path / "in" / kind)
        changes = {"model": {"init_from": str(tmp_path / "in" / kind)}, "training": {"train_steps": 6}}
        recipes[kind] = laid_out(LAYOUTS[kind], "fsdp", kind=kind, **changes)
    for kind, run in train_many(recipes, tmp_path / "runs").items():
        assert run.losses[-1] < run.losses[0] - 0.05, kind
        model = exported(run, tmp_path / "out" / kind)
        (found,) = evaluate(
            open_checkpoint(run.output / "checkpoints"), recipes[kind].data, cache=tmp_path / "cache", batches=1
        )
        # Three roads to one number: the run's own evaluation, ours of the checkpoint, and transformers' of the export.
        assert found.loss == pytest.approx(run.completed["losses"]["evaluation"], rel=1e-5)
        assert transformers_loss(model, recipes[kind], tmp_path / "cache") == pytest.approx(found.loss, rel=1e-5)


def transformers_loss(model: Any, recipe: Recipe, cache: Path) -> float:
    """The loss of the first eight held-out sequences, as transformers computes it."""
    held_out = open_corpora(recipe, cache=cache).validation_sets["demo"].read(range(8))
    tokens, labels = (torch.from_numpy(array.copy()) for array in (held_out.inputs, held_out.labels))
    with torch.no_grad():
        found = model.eval()(tokens, labels=labels, shift_labels=labels, output_router_logits=False).loss
    return float(found)


def test_a_large_model_leaves_in_several_files_with_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.training.export.huggingface.FILE_BYTES", 40_000)
    run = train(tiny_recipe(training={"train_steps": 1, "evaluation_batches": 0}), tmp_path / "run")
    checkpoint = open_checkpoint(run.output / "checkpoints")
    written = export_huggingface(
        checkpoint.weights, checkpoint.recipe.model, tmp_path / "out", tokenizer=checkpoint.tokenizer
    )
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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is linear, the recipe's default"),
        ({"rope_theta": 500000.0}, "rope_theta is 500000.0, the recipe's 10000.0"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True, the recipe's False"),
    ],
)
def test_a_folder_that_computes_something_else_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    recipe = tiny_recipe(model=MODELS["llama"])
    save_huggingface(recipe, tmp_path)
    path = tmp_path / "config.json"
    configuration = json.loads(path.read_text())
    rope = configuration.pop("rope_parameters")
    path.write_text(json.dumps({**configuration, "rope_theta": rope["rope_theta"], **changed}))
    with pytest.raises(CheckpointError) as error:
        open_huggingface(tmp_path, recipe.model)
    assert said in str(error.value)


def test_weights_that_the_model_has_no_place_for_are_named(tmp_path: Path) -> None:
    recipe = tiny_recipe(model=MODELS["llama"])
    save_huggingface(recipe, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.bias"] = torch.ones(32)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks: model.layers.0.self_attn.q_proj.bias"):
        open_huggingface(tmp_path, recipe.model)


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
    checkpoint = open_checkpoint(checkpoints)
    text = generate(checkpoint, "The ", tokens=12, seed=3)
    assert text.startswith("The ")
    assert len(text) > len("The ")
    assert text == generate(checkpoint, "The ", tokens=12, seed=3)
    (found,) = evaluate(checkpoint, recipe.data, cache=tmp_path / "cache", batches=1)
    # The same eight sequences as the run's own evaluation.
    assert found.loss == pytest.approx(run.completed["losses"]["evaluation"], rel=1e-5)
    assert (found.corpus, found.tokens) == ("demo", 8 * 32)


def test_a_rank_reads_no_more_of_the_files_than_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    block = Stored.block

    def counted(stored: Stored, shape: tuple[int, ...], box: tuple[slice, ...]) -> torch.Tensor:
        values = block(stored, shape, box)
        read.append(values.numel())
        return values

    monkeypatch.setattr(Stored, "block", counted)
    for kind in ("gpt2", "llama", "mixtral"):
        recipe = tiny_recipe(model=MODELS[kind])
        wanted = dict(save_huggingface(recipe, tmp_path / kind).named_parameters())
        shelf = open_huggingface(tmp_path / kind, recipe.model)
        for name, parameter in wanted.items():
            for axis in range(parameter.ndim):  # the second of two ranks that share the parameter along each axis
                region = cut(tuple(parameter.shape), axis, Axis(rank=1, size=2, group=None))
                piece = Piece(name=name, kind="parameter", region=region, tensor=torch.empty(region.size))
                read.clear()
                fill([piece], shelf)
                assert sum(read) == piece.tensor.numel(), (kind, name, axis)
                half = parameter.detach().narrow(axis, region.offset[axis], region.size[axis])
                torch.testing.assert_close(piece.tensor, half, rtol=0, atol=0)


def test_moments_come_along_from_a_run_of_ours_and_count_on(tmp_path: Path) -> None:
    plain = {"evaluation_batches": 0, "schedule": {"name": "constant", "warmup_steps": 0}}
    unbroken = train(tiny_recipe(training={"train_steps": 9, **plain}), tmp_path / "unbroken")
    first = train(tiny_recipe(training={"train_steps": 6, **plain}), tmp_path / "first")
    source = {"init_from": str(first.output / "checkpoints"), "init_optimizer": True}
    recipe = tiny_recipe(model=source, training={"train_steps": 1, **plain})
    second = train(recipe, tmp_path / "second")
    longer = tiny_recipe(model=source, training={"train_steps": 3, **plain})
    third = train(longer, tmp_path / "third", resume_from=second.output / "checkpoints")
    assert "Adam's moments after 6 updates" in second.logs[0]
    # The data begin anew, so losses are others; the moments' age is the unbroken run's.
    assert manifest_of(third).updates == manifest_of(unbroken).updates == 9
    assert manifest_of(third).step == 3


def test_moments_of_a_hugging_face_folder_are_refused(tmp_path: Path) -> None:
    save_huggingface(tiny_recipe(), tmp_path / "in")
    recipe = tiny_recipe(model={"init_from": str(tmp_path / "in"), "init_optimizer": True})
    finished = Run(recipe, tmp_path / "run").wait()
    assert finished.exit_codes == (1,)
    assert "holds weights alone" in finished.logs[0]


def manifest_of(run: Finished) -> Manifest:
    found = newest(run.output / "checkpoints")
    assert found is not None
    return found[1]
