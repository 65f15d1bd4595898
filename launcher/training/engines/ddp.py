"""Replicas that average their gradients: torch's DistributedDataParallel."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch.nn.parallel import DistributedDataParallel

from launcher.training.batches import MicroBatch
from launcher.training.decoder import build_on_meta, rebuild, speed_up
from launcher.training.engines.local_optimizer import Holding, LocalOptimizer
from launcher.training.initial import draw
from launcher.training.ranks import LOW_PRECISION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe
    from launcher.training.pieces import Piece
    from launcher.training.ranks import Ranks


def make_engine(recipe: Recipe, plan: Plan, ranks: Ranks) -> DdpEngine:
    """The engine of ``parallelism.engine: ddp``."""
    return DdpEngine(recipe, ranks)


class DdpEngine:
    """A whole model on every rank; fp32 weights, with products in the recipe's precision by autocast."""

    def __init__(self, recipe: Recipe, ranks: Ranks) -> None:
        self.recipe, self.ranks = recipe, ranks
        self.decoder = build_on_meta(recipe)
        self.decoder.to_empty(device=ranks.device)
        rebuild(self.decoder, ranks.device)
        speed_up(self.decoder, ranks.device)
        self.decoders = (self.decoder,)
        self.optimizer = LocalOptimizer(self._holdings(), recipe.training)
        draw(self.pieces(), recipe)
        self.module = self._replicate() if ranks.world_size > 1 else self.decoder

    def _holdings(self) -> Iterator[Holding]:
        """Every rank has everything; they write in turns."""
        world = self.ranks.world_size
        for number, (name, parameter) in enumerate(self.decoder.named_weights()):
            is_mine = number % world == self.ranks.rank
            region = self.decoder.regions[name]
            yield Holding(name=name, parameter=parameter, region=region, copies=world, is_written=is_mine)

    def _replicate(self) -> DistributedDataParallel:
        devices = [self.ranks.device] if self.ranks.device.type == "cuda" else None
        module = DistributedDataParallel(self.decoder, device_ids=devices, gradient_as_bucket_view=True)
        # DDP regroups its buckets after the first backward pass, and with them the order of its sums. A throw-away
        # pass settles them before step 1, so that a resumed run adds in the order of the unbroken one.
        module(_two_tokens(self.ranks.device)).objective.backward()
        module.zero_grad(set_to_none=True)
        return module

    def forward_backward(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine. Gradients are averaged over ranks once, in the last micro batch."""
        self.decoder.train()
        total = torch.zeros((), device=self.ranks.device)
        for number, batch in enumerate(batches, start=1):
            with self._synchronised(is_last=number == len(batches)):
                with self._autocast():
                    losses = self.module(batch)
                (losses.objective * (self.optimizer.loss_scale / len(batches))).backward()
            total += losses.cross_entropy / len(batches)
        return total

    def step(self, learning_rate: float) -> float:
        """See Engine."""
        return self.optimizer.step(learning_rate)

    @property
    def tolerates_overflow(self) -> bool:
        """See Engine."""
        return self.optimizer.tolerates_overflow

    @torch.no_grad()
    def evaluate(self, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """See Engine."""
        self.decoder.eval()
        total = torch.zeros((), device=self.ranks.device)
        for batch in batches:
            with self._autocast():
                total += self.decoder(batch).cross_entropy / len(batches)
        return total

    def pieces(self) -> Iterable[Piece]:
        """See Engine."""
        return self.optimizer.pieces()

    def scalars(self) -> dict[str, float]:
        """See Engine."""
        return self.optimizer.scalars()

    def restored(self, step: int, scalars: dict[str, float]) -> None:
        """See Engine."""
        self.optimizer.restored(step, scalars)

    def artifacts(self) -> dict[str, str]:
        """See Engine."""
        return {}

    def _synchronised(self, *, is_last: bool) -> AbstractContextManager[None]:
        if is_last or not isinstance(self.module, DistributedDataParallel):
            return nullcontext()
        return self.module.no_sync()

    def _autocast(self) -> AbstractContextManager[object]:
        precision = self.recipe.training.precision
        if precision == "fp32":
            return nullcontext()
        return torch.autocast(self.ranks.device.type, dtype=LOW_PRECISION[precision])


def _two_tokens(device: torch.device) -> MicroBatch:
    """The smallest batch with an attention to compute."""
    tokens = torch.zeros((1, 2), dtype=torch.long, device=device)
    return MicroBatch(tokens, tokens, torch.arange(2, device=device)[None], torch.tensor(2.0, device=device))
