"""The training loop."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from launcher.home import cache_folder
from launcher.recipe import codec
from launcher.recipe.redact import redact
from launcher.training.batches import Batches, held_tokens
from launcher.training.checkpoint.keeper import Keeper
from launcher.training.checkpoint.manifest import Manifest
from launcher.training.data.corpus import open_corpora
from launcher.training.engines.engine import open_engine
from launcher.training.errors import CheckpointError, NotFiniteError
from launcher.training.record import Record
from launcher.training.schedule import learning_rate

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """Folder of the newest checkpoint."""


def train(assignment: Assignment, ranks: Ranks, tracker: Tracker, *, output: Path) -> Outcome:
    """Train to the last step of the plan, or to a signal."""
    return Loop(assignment, ranks, tracker, output=output).run()


class Loop:
    """One run on this rank. What all ranks do, all ranks do in the same order."""

    def __init__(self, assignment: Assignment, ranks: Ranks, tracker: Tracker, *, output: Path) -> None:
        self.recipe, self.plan, self.ranks, self.assignment = assignment.recipe, assignment.plan, ranks, assignment
        corpora = open_corpora(self.recipe, cache=cache_folder())
        held = held_tokens(self.recipe, self.plan, ranks)
        self.train = Batches(corpora.train, self.plan, ranks, threads=self.recipe.data.num_workers, held=held)
        self.held_out = Batches(corpora.validation, self.plan, ranks, held=held) if corpora.validation else None
        self.engine = open_engine(self.recipe, self.plan, ranks)
        directory = self.recipe.checkpoint.directory
        self.keeper = Keeper(Path(directory) if directory else output / "checkpoints", keep=self.recipe.checkpoint.keep)
        self.record = Record(self.plan, self.recipe, ranks, tracker)
        self.step, self.losses = 0, dict.fromkeys(("first", "last", "evaluation"))
        self.saved: str | None = None
        self.is_stopping = False

    def run(self) -> Outcome:
        """Resume, train, evaluate, save."""
        signal.signal(signal.SIGTERM, self._stop)
        self._resume()
        self.record.start(first_step=self.step + 1, artifacts=self.engine.artifacts())
        upcoming = self.train.steps(self.step + 1, self.plan.batch.train_steps)
        while self.step < self.plan.batch.train_steps:
            self._one_step(upcoming)
            if self.is_stopping:
                return self._leave_early()
            if self._is_due(self.recipe.training.evaluation_interval_steps):
                self._evaluate()
            if self._is_due(self.recipe.checkpoint.interval_steps):
                self._save(must_succeed=False)
        self._evaluate()
        self._save(must_succeed=True)
        return self._outcome(0)

    def _one_step(self, upcoming: Iterator[list[MicroBatch]]) -> None:
        """Micro batches, one clipped update, one row of metrics."""
        self.step += 1
        rate = learning_rate(self.recipe.training, step=self.step, train_steps=self.plan.batch.train_steps)
        self._seed()
        with self.record.timing("data"):
            batches = next(upcoming)
        with self.record.timing("compute"):
            loss = self._agree(self.engine.forward_backward(batches))
            norm = self.engine.step(rate)
        if not math.isfinite(norm) and not self.engine.tolerates_overflow:
            raise self._not_finite(f"the gradient's norm is {norm}")
        self.losses["first"] = loss if self.losses["first"] is None else self.losses["first"]
        self.losses["last"] = loss
        self.record.step(self.step, loss=loss, learning_rate=rate, gradient_norm=norm)

    def _agree(self, loss: torch.Tensor) -> float:
        """Mean loss over the data-parallel ranks; also whether any rank was asked to stop, or has no finite loss."""
        mine = loss.detach().double().cpu()
        is_finite = bool(torch.isfinite(mine))
        shared = torch.stack(
            [
                mine if is_finite else mine.new_zeros(()),
                mine.new_tensor(float(self.is_stopping)),
                mine.new_tensor(0.0 if is_finite else 1.0),
            ]
        )
        dist.all_reduce(shared)
        if shared[2]:
            raise self._not_finite(f"the loss on this rank is {float(mine)}" if not is_finite else None)
        self.is_stopping = bool(shared[1])
        return float(shared[0]) / dist.get_world_size()

    def _not_finite(self, what: str | None) -> NotFiniteError:
        """What happened, where, and on which data; ``what`` is None where only another rank knows."""
        if what is None:
            return NotFiniteError(f"step {self.step} stopped: another rank's loss is not finite")
        ordinals = [ordinal for portion in self.train.ordinals(self.step) for ordinal in portion]
        newest = f"checkpoint {self.saved}" if self.saved else "no checkpoint yet"
        return NotFiniteError(
            f"step {self.step} stopped before its update: {what} (rank {self.ranks.rank}, sequences {ordinals[0]} to "
            f"{ordinals[-1]} of the training order; last good state: {newest})",
            keys=("training.optimizer.learning_rate", "training.gradient_clipping", "training.precision"),
        )

    def _seed(self) -> None:
        """Random numbers of a step (dropout) are a function of seed, step and rank: resuming needs no saved state."""
        if self.recipe.model.dropout:
            torch.manual_seed((self.recipe.training.seed * 1_000_003 + self.step) * 1_000_003 + self.train.data_rank)

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and self.step % interval == 0 and self.step < self.plan.batch.train_steps

    def _evaluate(self) -> None:
        count = self.recipe.training.evaluation_batches
        if self.held_out is None or not count:
            return
        with self.record.timing("evaluation"):
            losses = [self.engine.evaluate(batches) for batches in self.held_out.steps(1, count)]
            loss = self._agree(torch.stack(losses).mean())
        self.losses["evaluation"] = loss
        self.record.evaluation(self.step, loss=loss)

    def _save(self, *, must_succeed: bool) -> None:
        """Save; a failed save in the middle of a run is said and survived, the last one must hold."""
        try:
            with self.record.timing("checkpoint"):
                name = self.keeper.save(self.engine, self._manifest()).name
        except CheckpointError as error:
            if must_succeed:
                raise
            self.record.say(
                f"warning: {error}; training goes on, {self.saved or 'nothing'} stays the newest checkpoint"
            )
        else:
            self.saved = name
            self.record.saved(self.step, name)

    def _resume(self) -> None:
        """Continue from the newest whole checkpoint: this run's own, else the one the job names."""
        choice, elsewhere = self.recipe.checkpoint.resume, self.assignment.resume_from
        if choice == "never" and elsewhere is None:
            return
        found = self.keeper.load(self.engine, elsewhere=Path(elsewhere) if elsewhere else None)
        if found is None:
            if elsewhere or choice == "required":
                raise CheckpointError(
                    f"there is no whole checkpoint in {elsewhere or self.keeper.directory} to resume from",
                    keys=("checkpoint.resume", "checkpoint.directory"),
                )
            return
        folder, manifest = found
        self.step, self.saved = manifest.step, folder.name
        self.losses |= {name: manifest.losses.get(name) for name in ("first", "last")}
        self.record.say(f"resumed after step {self.step} from {folder}")

    def _leave_early(self) -> Outcome:
        self._save(must_succeed=True)
        self.record.say(f"asked to stop: step {self.step} is saved, resume continues with step {self.step + 1}")
        return self._outcome(PREEMPTED)

    def _manifest(self) -> Manifest:
        return Manifest(
            step=self.step,
            tokens=self.step * self.plan.batch.tokens_per_step,
            data_position=self.step * self.plan.batch.global_batch_size,
            layout=_layout(self.assignment),
            recipe=redact(codec.encode(self.recipe)),
            recipe_digest=self.plan.recipe_digest,
            attempt=int(self.assignment.document.get("attempt", 1)),
            random="a function of training.seed, step and data rank",
            losses={name: self.losses[name] for name in ("first", "last")},
            scalars=self.engine.scalars(),
            files=(),
        )

    def _outcome(self, exit_code: int) -> Outcome:
        tokens = self.step * self.plan.batch.tokens_per_step
        return Outcome(exit_code=exit_code, step=self.step, tokens=tokens, losses=self.losses, checkpoint=self.saved)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.is_stopping = True


def _layout(assignment: Assignment) -> dict[str, Any]:
    topology, layout = assignment.plan.topology, assignment.recipe.parallelism
    return {
        "engine": layout.engine,
        "zero_stage": layout.zero_stage,
        "world_size": topology.world_size,
        "tensor_parallel_size": topology.tensor_parallel_size,
        "pipeline_parallel_size": topology.pipeline_parallel_size,
        "context_parallel_size": topology.context_parallel_size,
        "expert_parallel_size": topology.expert_parallel_size,
        "data_parallel_size": topology.data_parallel_size,
    }
