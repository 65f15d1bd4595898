"""ONNX: every model type, from a divided layout, checked against transformers in ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from launcher.training.errors import CheckpointError
from launcher.training.export.huggingface import load_model
from launcher.training.weights import open_checkpoint, open_weights
from tests.training.layouts import FSDP, MODELS, laid_out
from tests.training.runs import tiny_recipe, train
from tests.training.test_huggingface import save_huggingface

if TYPE_CHECKING:
    from pathlib import Path

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'export' is not installed")
pytest.importorskip("onnxscript", reason="the extra 'export' is not installed")


def test_a_divided_run_leaves_as_onnx_with_the_logits_of_torch(tmp_path: Path) -> None:
    from launcher.training.export.onnx import export_onnx

    recipe = laid_out(FSDP["sequence"], "fsdp", kind="llama", training={"train_steps": 3})
    run = train(recipe, tmp_path / "run")
    checkpoint = open_checkpoint(run.output / "checkpoints")
    said = export_onnx(checkpoint.weights, recipe.model, tmp_path / "out", tokenizer=checkpoint.tokenizer)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    tokens = torch.arange(5 * 17).view(5, 17) % 257
    (found,) = session.run(None, {"input_ids": tokens.numpy()})
    with torch.no_grad():
        expected = load_model(checkpoint.weights, recipe.model)(tokens).logits
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-3)
    assert 0 <= said <= 1e-3
    assert (tmp_path / "out" / "tokenizer_config.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "llama"])
def test_every_model_type_leaves_as_onnx(kind: str, tmp_path: Path) -> None:
    from launcher.training.export.onnx import export_onnx

    recipe = tiny_recipe(model=MODELS[kind])
    save_huggingface(recipe, tmp_path / "in")
    assert export_onnx(open_weights(tmp_path / "in", recipe.model), recipe.model, tmp_path / "out") <= 1e-3


def test_a_graph_that_computes_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.training.export import onnx

    class Doubled(onnx._Logits):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input_ids)

    monkeypatch.setattr(onnx, "_Logits", Doubled)
    recipe = tiny_recipe(model={"num_hidden_layers": 1})
    save_huggingface(recipe, tmp_path / "in")
    with pytest.raises(CheckpointError, match="differ from torch's by"):
        onnx.export_onnx(open_weights(tmp_path / "in", recipe.model), recipe.model, tmp_path / "out")
