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
from launcher.training.engines.engine import open_engine
from launcher.training.errors import NotFiniteError
from launcher.training.progress import Continuity
from launcher.training.record import Record
from launcher.training.schedule import learning_rate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from launcher.tracking.tracker import Tracker
    from launcher.training.assignment import Assignment
    from launcher.training.batches import MicroBatch
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
        self.record = Record(self.plan, self.recipe, ranks, tracker)
        self.engine = open_engine(self.recipe, self.plan, ranks)
        self.continuity = Continuity(assignment, self.engine, self.record, corpora, output=output, leads=ranks.leads)
        self.progress = self.continuity.progress
        self.was_told_to_stop = self.is_stopping = self.is_written_everywhere = False

    def run(self) -> Outcome:
        """Resume, train, evaluate, save."""
        signal.signal(signal.SIGTERM, self._stop)
        self.progress = self.continuity.start()
        first, last = self.progress.step + 1, self.plan.batch.train_steps
        self.record.start(first_step=first, artifacts=self.engine.artifacts())
        upcoming = self.train.steps(first, last)
        while self.progress.step < last:
            self._one_step(upcoming)
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
        self.record.step(step, loss=loss, learning_rate=rate, gradient_norm=norm)

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
        shared = torch.stack([mine if is_finite else mine.new_zeros(()), *(mine.new_tensor(float(f)) for f in flags)])
        dist.all_reduce(shared)
        total, told, lost, written = shared.tolist()
        if lost:
            raise self._not_finite(None if is_finite else f"the loss on this rank is {float(mine)}")
        self.is_stopping, self.is_written_everywhere = bool(told), written == dist.get_world_size()
        return float(total) / dist.get_world_size()

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
        """Random numbers of a step (dropout) are a function of seed, step and place: resuming needs no saved state."""
        if not self.recipe.model.dropout:
            return
        here = place(self.plan.topology, self.ranks.rank)
        # Tensor ranks hold the same activations, and drop the same, unless they share the sequence.
        tensor = here.tensor if self.recipe.parallelism.sequence_parallel else 0
        key = f"{self.recipe.training.seed}/{step}/{here.data}/{here.pipeline}/{here.context}/{tensor}"
        torch.manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1)

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
