"""How many sequences one optimizer step sees: ``global = micro x data x accumulation``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.plan.plan import Batch

if TYPE_CHECKING:
    from launcher.plan.plan import Topology
    from launcher.recipe.schema import Training


def make_batch(training: Training, topology: Topology) -> Batch | None:
    """The batch, or None when micro x data does not divide the global batch."""
    per_pass = training.micro_batch_size * topology.data_parallel_size
    accumulation, rest = divmod(training.global_batch_size, per_pass)
    if rest or not accumulation:
        return None
    tokens = training.global_batch_size * training.seq_length
    steps = training.train_steps or -(-(training.train_tokens or tokens) // tokens)
    return Batch(
        global_batch_size=training.global_batch_size,
        micro_batch_size=training.micro_batch_size,
        gradient_accumulation_steps=accumulation,
        tokens_per_step=tokens,
        train_steps=steps,
        train_tokens=steps * tokens,
        equation=f"{training.micro_batch_size} micro x {topology.data_parallel_size} data x "
        f"{accumulation} accumulation = {training.global_batch_size} sequences",
    )


def nearest_multiples(value: int, unit: int) -> tuple[int, ...]:
    """The multiples of ``unit`` just below (if any) and above ``value``."""
    below = value // unit * unit
    return tuple(choice for choice in (below, below + unit) if choice > 0)
