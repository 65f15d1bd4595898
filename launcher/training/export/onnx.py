"""An ONNX model for ONNX Runtime, checked against torch before anybody relies on it.

One graph from tokens to logits, fp32, any number of sequences of any length up to the model's positions, without a
key/value cache: for scoring, embedding into other runtimes and short texts.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from launcher.errors import MissingExtraError
from launcher.training.errors import CheckpointError
from launcher.training.export.huggingface import load_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from launcher.recipe.schema import Model
    from launcher.training.weights import Weights

FILE = "model.onnx"
LARGEST_DIFFERENCE = 1e-3
"""Between torch's logits and ONNX Runtime's: beyond it the export has failed."""
_TRACED = (2, 7)
"""Sequences and tokens of the example the graph is traced with."""
_CHECKED = ((1, 1), (3, 33))
"""Sequences and tokens that both run afterwards: others than those traced."""


def export_onnx(weights: Weights, model: Model, folder: Path, *, tokenizer: Path | None = None) -> float:
    """Write ``weights`` as ``model.onnx`` (and its data beside it): ``input_ids`` [B, S] in, ``logits`` [B, S, V] out.

    Args:
        weights: Of a checkpoint of any layout.
        model: The model section of its recipe.
        folder: Where to; made if needed.
        tokenizer: Folder of the run's tokenizer, which goes along.

    Returns:
        The largest difference between torch's logits and ONNX Runtime's.

    Raises:
        MissingExtraError: onnx, onnxscript or onnxruntime is not installed.
        CheckpointError: they differ by more than ``LARGEST_DIFFERENCE``.
    """
    runtime = _import_runtime()
    # Experts one after the other are a loop whose length the data decide; in one product they are a graph.
    loaded = load_model(weights, model, **({"experts_implementation": "batched_mm"} if model.num_local_experts else {}))
    folder.mkdir(parents=True, exist_ok=True)
    with _quiet():
        program = torch.onnx.export(_Logits(loaded).eval(), (_tokens(_TRACED, model),), **_graph(model), verbose=False)
        assert program is not None
        program.save(folder / FILE, external_data=True)
    if tokenizer:
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    session = runtime.InferenceSession(folder / FILE, providers=["CPUExecutionProvider"])
    difference = max(_difference(loaded, session, _tokens(shape, model)) for shape in _CHECKED)
    if not difference <= LARGEST_DIFFERENCE:  # NaN is no agreement either
        raise CheckpointError(
            f"{folder / FILE}: ONNX Runtime's logits differ from torch's by {difference:.1e}, "
            f"at most {LARGEST_DIFFERENCE} expected"
        )
    return difference


def _import_runtime() -> Any:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"{error.name} is not installed", suggestion="pip install 'launcher[export]'"
        ) from error
    return onnxruntime


class _Logits(nn.Module):
    """A causal language model from tokens to logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[B, S] in, [B, S, V] out."""
        logits: torch.Tensor = self.model(input_ids, use_cache=False).logits
        return logits


def _graph(model: Model) -> dict[str, Any]:
    """How the graph is made: which of its axes have no fixed length, and what its ends are called."""
    sequences = torch.export.Dim("sequences", min=1)
    tokens = torch.export.Dim("tokens", min=1, max=model.max_position_embeddings)
    return {
        "dynamo": True,
        "input_names": ["input_ids"],
        "output_names": ["logits"],
        "dynamic_shapes": {"input_ids": {0: sequences, 1: tokens}},
    }


def _tokens(shape: tuple[int, int], model: Model) -> torch.Tensor:
    """[B, S] tokens, other ones in each place."""
    sequences, length = shape[0], min(shape[1], model.max_position_embeddings)
    return (torch.arange(1, sequences * length + 1) * 31 % model.vocab_size).view(sequences, length)


@torch.no_grad()
def _difference(loaded: Any, session: Any, tokens: torch.Tensor) -> float:
    (found,) = session.run(None, {"input_ids": tokens.numpy()})
    return float((torch.from_numpy(found) - loaded(tokens).logits).abs().max())


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch tells its progress on stdout, where our answer goes, and what other packages could add in its log."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
