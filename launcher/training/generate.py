"""A look at what a checkpoint has learnt: text that goes on from a prompt, and its loss on held-out text."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from launcher.training.checkpoint.manifest import newest
from launcher.training.data.corpus import open_corpora
from launcher.training.errors import CheckpointError
from launcher.training.huggingface import TOKENIZER, load_model
from launcher.training.weights import open_weights, recipe_of

if TYPE_CHECKING:
    from pathlib import Path

    from launcher.recipe.schema import Recipe
    from launcher.training.data.sequences import Sequences

EVALUATION_ROWS = 8
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


def generate(checkpoints: Path, prompt: str, *, tokens: int = 100, temperature: float = 0.8, seed: int = 0) -> str:
    """``prompt`` and up to ``tokens`` tokens after it, as the newest checkpoint in ``checkpoints`` would go on.

    Args:
        checkpoints: A run's checkpoint folder.
        prompt: Text to go on from.
        tokens: Most tokens to add.
        temperature: 0 always takes the likeliest token.
        seed: Of the choice among tokens.

    Raises:
        CheckpointError: there is no checkpoint, or no tokenizer beside it.
    """
    from transformers import AutoTokenizer

    model, recipe = _load(checkpoints)
    folder = checkpoints / TOKENIZER
    if not folder.is_dir():
        raise CheckpointError(f"{checkpoints} has no tokenizer: the corpus was tokenized elsewhere")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    read = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
    torch.manual_seed(seed)
    choice = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    room = min(tokens, recipe.model.max_position_embeddings - read.shape[1])
    written = model.generate(read, attention_mask=torch.ones_like(read), max_new_tokens=room, pad_token_id=0, **choice)
    return str(tokenizer.decode(written[0], skip_special_tokens=True))


def evaluate(checkpoints: Path, recipe: Recipe, *, cache: Path, batches: int = 0) -> list[Evaluation]:
    """Loss and perplexity of the newest checkpoint on each held-out corpus of ``recipe``.

    Args:
        checkpoints: A run's checkpoint folder.
        recipe: Whose ``data`` is read; its ``model`` is that of the checkpoint.
        cache: Where prepared corpora are kept.
        batches: Most batches of 8 sequences a corpus; 0 reads each held-out sequence once.
    """
    model, saved = _load(checkpoints)
    corpora = open_corpora(replace(recipe, model=saved.model), cache=cache)
    return [_evaluation(model, name, sequences, batches) for name, sequences in corpora.validation_sets.items()]


def _load(checkpoints: Path) -> tuple[Any, Recipe]:
    found = newest(checkpoints)
    if found is None:
        raise CheckpointError(f"there is no whole checkpoint in {checkpoints}")
    recipe = recipe_of(found[1])
    return load_model(open_weights(found[0], recipe.model), recipe.model), recipe


@torch.no_grad()
def _evaluation(model: Any, corpus: str, sequences: Sequences, batches: int) -> Evaluation:
    count = min(len(sequences), batches * EVALUATION_ROWS) if batches else len(sequences)
    total, tokens = 0.0, 0
    for first in range(0, count, EVALUATION_ROWS):
        batch = sequences.read(range(first, min(first + EVALUATION_ROWS, count)))
        labels = torch.from_numpy(batch.labels.copy())
        logits = model(torch.from_numpy(batch.inputs.copy())).logits
        losses = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum")
        total += float(losses)
        tokens += int((labels >= 0).sum())
    loss = total / max(tokens, 1)
    return Evaluation(corpus=corpus, tokens=tokens, loss=loss, perplexity=math.exp(loss))
