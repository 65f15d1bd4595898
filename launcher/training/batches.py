"""Which sequences a rank sees in which step, as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from launcher.plan.plan import place
from launcher.training.data.loader import micro_batches, read_ahead
from launcher.training.parallel.context import slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe
    from launcher.training.data.sequences import Batch, Sequences
    from launcher.training.parallel.context import Style
    from launcher.training.ranks import Ranks


class MicroBatch(NamedTuple):
    """What one forward pass reads: B sequences of S tokens."""

    inputs: torch.Tensor
    """[B, L] tokens: L of each sequence's S, where context-parallel ranks share it."""
    labels: torch.Tensor
    """[B, L] next tokens; -100 where nothing is learnt."""
    positions: torch.Tensor
    """[B, L] place of each token in its document, or in its sequence where attention crosses documents."""
    targets: torch.Tensor
    """Scalar: what the summed loss is divided by, the mean number of targets a micro batch of the step has."""
    documents: torch.Tensor | None = None
    """[B, S] document of each token of the whole sequences; None where attention crosses documents."""
    queries: torch.Tensor | None = None
    """[L] which of the S tokens attention computes here; None for all of them."""


class Share(NamedTuple):
    """What of every sequence one of several context-parallel ranks reads."""

    tokens: torch.Tensor
    """[L] which of the S tokens."""
    attends_alone: bool
    """Whether attention computes these tokens' queries here (gathered), or whole sequences of some heads (Ulysses)."""


class Batches:
    """This rank's share of every global batch: a step sees the same sequences for any number of ranks."""

    def __init__(
        self, sequences: Sequences, plan: Plan, ranks: Ranks, *, threads: int = 0, share: Share | None = None
    ) -> None:
        """``threads`` read ahead, 0 reads when asked; ``share``: this context rank's part of every sequence."""
        self.sequences, self.plan, self.ranks, self.threads = sequences, plan, ranks, threads
        self.share = share
        self.data_rank = place(plan.topology, ranks.rank).data

    def ordinals(self, step: int) -> list[range]:
        """Positions in the endless order that this rank sees in ``step`` (1-based), a range a micro batch."""
        return micro_batches(
            step - 1,
            global_batch_size=self.plan.batch.global_batch_size,
            micro_batch_size=self.plan.batch.micro_batch_size,
            data_rank=self.data_rank,
            data_parallel_size=self.plan.topology.data_parallel_size,
        )

    def steps(self, first: int, last: int) -> Iterator[list[MicroBatch]]:
        """The micro batches of each step from ``first`` to ``last`` (1-based, both included)."""
        wanted = (ordinals for step in range(first, last + 1) for ordinals in self.ordinals(step))
        read = read_ahead(self.sequences, wanted, threads=self.threads)
        portions = self.plan.batch.gradient_accumulation_steps
        for _ in range(first, last + 1):
            yield self._tensors([next(read) for _ in range(portions)])

    def _tensors(self, batches: list[Batch]) -> list[MicroBatch]:
        targets = self._targets(batches)
        return [as_micro_batch(batch, targets, share=self.share) for batch in batches]

    def _targets(self, batches: list[Batch]) -> torch.Tensor:
        """Targets of the global batch divided by its micro batches; counted over all ranks where some are masked."""
        if all(batch.is_target is None for batch in batches):
            return torch.tensor(float(batches[0].inputs.size), device=self.ranks.device)
        mine = sum(int((batch.labels >= 0).sum()) for batch in batches)
        count = torch.tensor(float(mine))
        dist.all_reduce(count)  # ranks that share sequences count them as often in the numerator as here
        return (count / (len(batches) * dist.get_world_size())).clamp(min=1).to(self.ranks.device)


def as_micro_batch(batch: Batch, targets: torch.Tensor, *, share: Share | None = None) -> MicroBatch:
    """``batch`` as tensors on the device of ``targets``; all of it, or this rank's ``share``."""
    device = targets.device
    in_order = np.broadcast_to(np.arange(batch.inputs.shape[1]), batch.inputs.shape)
    positions = in_order if batch.positions is None else batch.positions
    # Copies: slices and broadcasts are not writable, and torch has no read-only tensors.
    inputs, labels, places = (torch.tensor(array) for array in (batch.inputs, batch.labels, positions))
    if share:
        inputs, labels, places = (tensor[:, share.tokens] for tensor in (inputs, labels, places))
    documents = None if batch.documents is None else torch.from_numpy(batch.documents[:, :-1]).to(device)
    has_own = documents is not None and share is not None and share.attends_alone
    queries = share.tokens.to(device) if has_own and share else None
    return MicroBatch(inputs.to(device), labels.to(device), places.to(device), targets, documents, queries)


def context_share(recipe: Recipe, plan: Plan, ranks: Ranks) -> Share | None:
    """This rank's part of every sequence; None for all of it."""
    size = plan.topology.context_parallel_size
    if size == 1:
        return None
    style: Style = "ulysses" if recipe.parallelism.engine == "deepspeed" else "gathered"
    here = place(plan.topology, ranks.rank).context
    tokens = slices(recipe.training.seq_length, size=size, rank=here, style=style)
    return Share(tokens=tokens, attends_alone=style == "gathered")
