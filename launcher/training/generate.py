"""A look at what a checkpoint has learnt: text that goes on from a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from launcher.training.errors import CheckpointError
from launcher.training.export.huggingface import load_model

if TYPE_CHECKING:
    from launcher.training.weights import Checkpoint


def generate(checkpoint: Checkpoint, prompt: str, *, tokens: int = 100, temperature: float = 0.8, seed: int = 0) -> str:
    """``prompt`` and up to ``tokens`` tokens after it, as the model would go on.

    Args:
        checkpoint: Whose model.
        prompt: Text to go on from; empty begins where a document begins.
        tokens: Most tokens to add.
        temperature: 0 always takes the likeliest token.
        seed: Of the choice among tokens.

    Raises:
        CheckpointError: there is no tokenizer, or the prompt leaves no room.
    """
    from transformers import AutoTokenizer

    if checkpoint.tokenizer is None:
        raise CheckpointError(f"{checkpoint.folder.parent} has no tokenizer: the corpus was tokenized elsewhere")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.tokenizer, local_files_only=True)
    read = _read(tokenizer, prompt)
    model, most = checkpoint.recipe.model, checkpoint.recipe.model.max_position_embeddings
    room = min(tokens, most - read.shape[1])
    if room < 1:
        raise CheckpointError(f"the prompt has {read.shape[1]} tokens, the model {most} positions: no room to go on")
    torch.manual_seed(seed)
    written = load_model(checkpoint.weights, model).generate(
        read,
        attention_mask=torch.ones_like(read),
        max_new_tokens=room,
        pad_token_id=0,
        eos_token_id=tokenizer.eos_token_id,
        **({"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}),
    )
    return str(tokenizer.decode(written[0], skip_special_tokens=True))


def _read(tokenizer: Any, prompt: str) -> torch.Tensor:
    """[1, S] tokens; an empty prompt is the token that ends a document, after which one begins."""
    if prompt:
        read: torch.Tensor = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
        return read
    return torch.tensor([[tokenizer.bos_token_id or tokenizer.eos_token_id or 0]])
