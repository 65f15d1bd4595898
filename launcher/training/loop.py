"""The training loop."""

from __future__ import annotations

import hashlib
import math
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from launcher.home import cache_folder
from launcher.plan.plan import place
from launcher.training.batches import Batches, context_share
from launcher.training.data.corpus import open_corpora
from launcher.training.data.errors import DataError
from launcher.training.engines.engine import engine_maker
from launcher.training.errors import NotFiniteError
from launcher.training.profiling import Profiling
from launcher.training.progress import Continuity
from launcher.training.record import Record
from launcher.training.schedule import learning_rate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from launcher.plan.plan import Place
    from launcher.recipe.schema import Recipe
    from launcher.tracking.tracker import Tracker
    from launcher.training.assignment import Assignment
    from launcher.training.batches import MicroBatch
    from launcher.training.data.corpus import Corpora
    from launcher.training.ranks import Ranks

PREEMPTED = 128 + signal.SIGTERM
"""Exit code of a run that was asked to stop, as a shell would report it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    exit_code: int
    step: int
    tokens: int
    losses: dict[str, float | None]
    """First and last training loss, and the last evaluation loss."""
    checkpoint: str | None
    """Name of the newest checkpoint."""


def train(assignment: Assignment, ranks: Ranks, tracker: Tracker, *, output: Path) -> Outcome:
    """Train to the last step of the plan, or to a signal."""
    return Loop(assignment, ranks, tracker, output=output).run()


class Loop:
    """One run on this rank. What all ranks do, all ranks do in the same order."""

    def __init__(self, assignment: Assignment, ranks: Ranks, tracker: Tracker, *, output: Path) -> None:
        self.recipe, self.plan, self.ranks = assignment.recipe, assignment.plan, ranks
        corpora = open_corpora(self.recipe, cache=cache_folder())
        share = context_share(self.recipe, self.plan, ranks)
        self.train = Batches(corpora.train, self.plan, ranks, threads=self.recipe.data.num_workers, share=share)
        self.held_out = Batches(corpora.validation, self.plan, ranks, share=share) if corpora.validation else None
        make_engine = engine_maker(self.recipe)
        self.record = Record(self.plan, self.recipe, ranks, tracker)
        self.profiling = Profiling(self.recipe.training.profile, self.plan, ranks, self.record, output)
        self._agree_on_data(corpora)
        faults = [fault.what for fault in corpora.quarantined]
        self.tags = {"quarantined": "; ".join(faults)} if faults else {}
        self.engine = make_engine(self.recipe, self.plan, ranks)
        self.continuity = Continuity(assignment, self.engine, self.record, corpora, output=output, leads=ranks.leads)
        self.progress = self.continuity.progress
        self.was_told_to_stop = self.is_stopping = self.is_written_everywhere = False
        self.expert_load: float | None = None

    def run(self) -> Outcome:
        """Resume, train, evaluate, save."""
        signal.signal(signal.SIGTERM, self._stop)
        self.progress = self.continuity.start()
        first, last = self.progress.step + 1, self.plan.batch.train_steps
        self.record.start(first_step=first, artifacts=self.engine.artifacts(), tags=self.tags)
        upcoming = self.train.steps(first, last)
        while self.progress.step < last:
            self.profiling.before(self.progress.step + 1)
            self._one_step(upcoming)
            self.profiling.after(self.progress.step)
            if self.is_stopping:
                return self._leave_early()
            if self.is_written_everywhere:
                self.continuity.commit()
            if self._is_due(self.recipe.training.evaluation_interval_steps):
                self._evaluate()
            if self._is_due(self.recipe.checkpoint.interval_steps):
                self.continuity.begin_save()
        self._evaluate()
        self.continuity.save()
        return self._outcome(0)

    def _one_step(self, upcoming: Iterator[list[MicroBatch]]) -> None:
        """Micro batches, one clipped update, one row of metrics."""
        self.progress.step = step = self.progress.step + 1
        rate = learning_rate(self.recipe.training, step=step, train_steps=self.plan.batch.train_steps)
        self._seed(step)
        with self.record.timing("data"):
            batches = next(upcoming)
        with self.record.timing("compute"):
            loss = self._agree(self.engine.forward_backward(batches))
            norm = self.engine.step(rate)
        if not math.isfinite(norm) and not self.engine.tolerates_overflow:
            raise self._not_finite(f"the gradient's norm is {norm}")
        self.progress.trained(loss)
        self.record.step(step, loss=loss, learning_rate=rate, gradient_norm=norm, expert_load=self.expert_load)

    def _evaluate(self) -> None:
        """Mean loss on held-out text, the same sequences every time."""
        count = self.recipe.training.evaluation_batches
        if self.held_out is None or not count:
            return
        with self.record.timing("evaluation"):
            losses = [self.engine.evaluate(batches) for batches in self.held_out.steps(1, count)]
            loss = self._agree(torch.stack(losses).mean())
        self.progress.losses["evaluation"] = loss
        self.record.evaluation(self.progress.step, loss=loss)

    def _agree(self, loss: torch.Tensor) -> float:
        """Mean loss over all ranks.

        With it go the things that all ranks must know alike: whether any was asked to stop or has no finite loss, and
        whether all have written their part of a checkpoint.
        """
        mine = loss.detach().double().cpu()
        is_finite = bool(torch.isfinite(mine))
        flags = (self.was_told_to_stop, not is_finite, self.continuity.keeper.is_written)
        load = max(decoder.take_expert_load() for decoder in self.engine.decoders)
        shared = torch.tensor([float(mine) if is_finite else 0.0, load, *map(float, flags)], dtype=torch.float64)
        dist.all_reduce(shared)
        total, loads, told, lost, written = shared.tolist()
        if lost:
            raise self._not_finite(None if is_finite else f"the loss on this rank is {float(mine)}")
        self.is_stopping, self.is_written_everywhere = bool(told), written == dist.get_world_size()
        self.expert_load = loads / dist.get_world_size() if self.recipe.model.num_local_experts else None
        return float(total) / dist.get_world_size()

    def _agree_on_data(self, corpora: Corpora) -> None:
        """All ranks read the same text in the same order.

        Raises:
            DataError: a rank's files are others.
        """
        digests: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(digests, corpora.digest)
        others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if others:
            raise DataError(
                f"{len(others)} of {len(digests)} ranks, rank {others[0]} the first, have other data than rank 0",
                keys=("data.train", "data.validation"),
                code="data.differs",
                suggestion="the same files on every node",
            )

    def _not_finite(self, what: str | None) -> NotFiniteError:
        """What happened, where, and on which data; ``what`` is None where only another rank knows."""
        step = self.progress.step
        if what is None:
            return NotFiniteError(f"step {step} stopped: another rank's loss is not finite")
        ordinals = [ordinal for portion in self.train.ordinals(step) for ordinal in portion]
        newest = self.progress.saved or "none saved yet"
        return NotFiniteError(
            f"step {step} stopped before its update: {what} (rank {self.ranks.rank}, sequences {ordinals[0]} to "
            f"{ordinals[-1]} of the training order; last good state: {newest})",
            keys=("training.optimizer.learning_rate", "training.gradient_clipping", "training.precision"),
        )

    def _seed(self, step: int) -> None:
        if self.recipe.model.dropout or self.recipe.training.lora.dropout:
            torch.manual_seed(step_seed(self.recipe, place(self.plan.topology, self.ranks.rank), step))

    def _is_due(self, interval: int) -> bool:
        step = self.progress.step
        return interval > 0 and step % interval == 0 and step < self.plan.batch.train_steps

    def _leave_early(self) -> Outcome:
        self.continuity.save()
        step = self.progress.step
        self.record.say(f"asked to stop: step {step} is saved, resume continues with step {step + 1}")
        return self._outcome(PREEMPTED)

    def _outcome(self, exit_code: int) -> Outcome:
        progress = self.progress
        return Outcome(
            exit_code=exit_code,
            step=progress.step,
            tokens=progress.step * self.plan.batch.tokens_per_step,
            losses=progress.losses,
            checkpoint=progress.saved,
        )

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.was_told_to_stop = True


def step_seed(recipe: Recipe, here: Place, step: int) -> int:
    """Seed of a step's random numbers (dropout) on one rank: resuming needs no saved state.

    Ranks that hold the same activations drop the same: tensor ranks, unless they share the sequence.
    """
    tensor = here.tensor if recipe.parallelism.sequence_parallel else 0
    key = f"{recipe.training.seed}/{step}/{here.data}/{here.pipeline}/{here.context}/{tensor}"
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
