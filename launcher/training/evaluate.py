"""What a checkpoint is worth on text it has not seen: loss, perplexity, and the tasks of lm-evaluation-harness."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from launcher.errors import MissingExtraError, UsageError
from launcher.recipe.schema import Lora, Parallelism
from launcher.registry import nearest
from launcher.training.batches import as_micro_batch
from launcher.training.data.corpus import open_corpora
from launcher.training.decoder import build_in_place
from launcher.training.errors import CheckpointError
from launcher.training.export.huggingface import load_model
from launcher.training.pieces import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from launcher.recipe.schema import Data, Recipe
    from launcher.training.data.sequences import Sequences
    from launcher.training.decoder import Decoder
    from launcher.training.weights import Checkpoint, Weights

ROWS = 8
"""Sequences read at once."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Loss on held-out text of one corpus."""

    corpus: str
    tokens: int
    """Tokens predicted."""
    loss: float
    """Nats per token."""
    perplexity: float
    """exp(loss)."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One figure of a task of lm-evaluation-harness, by its names."""

    task: str
    metric: str
    value: float


def evaluate(checkpoint: Checkpoint, data: Data, *, cache: Path, batches: int = 0) -> list[Evaluation]:
    """Loss and perplexity of a checkpoint on each held-out corpus of ``data``.

    Args:
        checkpoint: Whose model.
        data: What is read, cut into sequences as the checkpoint's recipe says.
        cache: Where prepared corpora are kept.
        batches: Most batches of 8 sequences a corpus; 0 reads each held-out sequence once.

    Raises:
        DataError: a corpus cannot be read.
    """
    recipe = replace(checkpoint.recipe, data=data)
    corpora = open_corpora(recipe, cache=cache)
    decoder = _load_decoder(checkpoint.weights, recipe)
    return [_evaluation(decoder, name, sequences, batches) for name, sequences in corpora.validation_sets.items()]


def _load_decoder(weights: Weights, recipe: Recipe) -> Decoder:
    """The model as it is trained: attention that stops at documents where it did, logits a portion at a time."""
    whole_weights = replace(recipe.training, lora=Lora(), attention="sdpa")
    decoder = build_in_place(replace(recipe, training=whole_weights, parallelism=Parallelism()))
    weights.fill(
        Piece(name=name, kind="parameter", region=decoder.regions[name], tensor=parameter.data)
        for name, parameter in decoder.named_weights()
    )
    return decoder.eval()


@torch.no_grad()
def _evaluation(decoder: Decoder, corpus: str, sequences: Sequences, batches: int) -> Evaluation:
    count = min(len(sequences), batches * ROWS) if batches else len(sequences)
    total, tokens = 0.0, 0
    for first in range(0, count, ROWS):
        batch = as_micro_batch(sequences.read(range(first, min(first + ROWS, count))), torch.ones(()))
        total += float(decoder(batch).cross_entropy)
        tokens += int((batch.labels >= 0).sum())
    loss = total / max(tokens, 1)
    return Evaluation(corpus=corpus, tokens=tokens, loss=loss, perplexity=math.exp(loss))


def run_tasks(
    checkpoint: Checkpoint, tasks: Sequence[str], *, folder: Path | None = None, limit: int | None = None
) -> list[Score]:
    """Scores of lm-evaluation-harness; its data must be on this machine.

    Args:
        checkpoint: Whose model.
        tasks: By the harness's names.
        folder: Of task files beside the harness's own.
        limit: Most documents a task; None reads all.

    Raises:
        MissingExtraError: the harness is not installed.
        UsageError: it has no such task.
        CheckpointError: there is no tokenizer.
    """
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        what = "lm-evaluation-harness is not installed"
        raise MissingExtraError(what, suggestion="pip install 'lm-eval[hf]'") from error
    from transformers import AutoTokenizer

    manager = TaskManager(include_path=None if folder is None else str(folder))
    strange = [name for name in tasks if name not in manager.all_tasks]
    if strange:
        near = ", ".join(nearest(strange[0], manager.all_tasks))
        raise UsageError(f"lm-evaluation-harness has no task {', '.join(strange)}", allowed=near or None)
    if checkpoint.tokenizer is None:
        raise CheckpointError(f"{checkpoint.folder.parent} has no tokenizer: the corpus was tokenized elsewhere")
    model = HFLM(
        pretrained=load_model(checkpoint.weights, checkpoint.recipe.model),
        tokenizer=AutoTokenizer.from_pretrained(checkpoint.tokenizer, local_files_only=True),
        batch_size=ROWS,
        max_length=checkpoint.recipe.model.max_position_embeddings,
    )
    found = simple_evaluate(model, tasks=list(tasks), task_manager=manager, limit=limit, bootstrap_iters=0)
    return list(_scores(found["results"]))


def _scores(results: dict[str, dict[str, Any]]) -> Iterator[Score]:
    """``acc,none: 0.5`` of each task; what is no number is the task's name."""
    for task, figures in results.items():
        for name, value in figures.items():
            metric = name.removesuffix(",none")
            if isinstance(value, float) and not metric.endswith("_stderr"):
                yield Score(task=task, metric=metric, value=value)
