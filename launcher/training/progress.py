"""How far a run has come, and how that survives: saving, resuming, starting from other weights."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.recipe import codec
from launcher.recipe.redact import redact
from launcher.training.checkpoint.keeper import Keeper
from launcher.training.checkpoint.manifest import UPDATES_BEFORE, Manifest
from launcher.training.errors import CheckpointError, SupersededError
from launcher.training.huggingface import TOKENIZER
from launcher.training.weights import begin_from

if TYPE_CHECKING:
    from launcher.training.assignment import Assignment
    from launcher.training.data.corpus import Corpora
    from launcher.training.engines.engine import Engine
    from launcher.training.record import Record


LONGEST_STALL_SECONDS = 60.0
"""How long training waits for a slow disk before it passes over a save; a copy to host memory takes a few seconds."""


@dataclass(kw_only=True)
class Progress:
    """Where a run stands."""

    step: int = 0
    """Optimizer updates done."""
    losses: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(("first", "last", "evaluation")))
    """First and last training loss, and the last evaluation loss."""
    saved: str | None = None
    """Name of the newest checkpoint."""

    def trained(self, loss: float) -> None:
        """A step was done, at ``loss``."""
        self.losses["first"] = loss if self.losses["first"] is None else self.losses["first"]
        self.losses["last"] = loss


class Continuity:
    """Keeps a run's progress on disk. What all ranks do, all ranks do in the same order."""

    def __init__(
        self, assignment: Assignment, engine: Engine, record: Record, corpora: Corpora, *, output: Path, leads: bool
    ) -> None:
        self.assignment, self.engine, self.record, self.corpora = assignment, engine, record, corpora
        self.leads = leads
        settings = assignment.recipe.checkpoint
        self.keeper = Keeper(Path(settings.directory or output / "checkpoints"), keep=settings.keep)
        self.progress = Progress()
        self.updates_before = 0

    def start(self) -> Progress:
        """Continue from the newest whole checkpoint, this run's own or the one the job names; else begin at step 1.

        Raises:
            CheckpointError: there is none where one is required, or the weights to begin with are of another model.
        """
        recipe, elsewhere = self.assignment.recipe, self.assignment.resume_from
        is_frozen = recipe.training.lora.rank > 0  # checkpoints hold what is trained alone
        if is_frozen:
            self._begin()
        if recipe.checkpoint.resume != "never" or elsewhere:
            self._resume(Path(elsewhere) if elsewhere else None)
        if not self.progress.step and not is_frozen:
            self._begin()
        self.keeper.claim()
        if self.corpora.tokenizer_folder and self.leads:
            shutil.copytree(self.corpora.tokenizer_folder, self.keeper.directory / TOKENIZER, dirs_exist_ok=True)
        return self.progress

    def _begin(self) -> None:
        """Take the weights that the recipe begins with, if it names any; else they stay as drawn."""
        model = self.assignment.recipe.model
        if model.init_from:
            folder, self.updates_before = begin_from(self.engine, model)
            moments = f", Adam's moments after {self.updates_before} updates" if model.init_optimizer else ""
            self.record.say(f"weights from {folder}{moments}")

    def begin_save(self) -> None:
        """Start a save that is committed at a later step edge; none while the one before it is still being written."""
        with self.record.timing("checkpoint"):
            is_free = self.keeper.is_free(within=LONGEST_STALL_SECONDS)
        if not is_free:
            step = self.progress.step
            self.record.say(f"warning: step {step} is not saved: the checkpoint before it is still being written")
            return
        self.commit()
        with self.record.timing("checkpoint"):
            self.keeper.begin(self.engine, self._manifest())

    def commit(self) -> None:
        """Commit a save that was begun; one that failed in the middle of a run is said and survived."""
        try:
            with self.record.timing("checkpoint"):
                folder = self.keeper.finish()
        except SupersededError:
            raise
        except CheckpointError as error:
            newest = self.progress.saved or "nothing"
            self.record.say(f"warning: {error}; training goes on, {newest} stays the newest checkpoint")
            return
        if folder:
            self._saved(folder)

    def save(self) -> None:
        """Save and wait; it must succeed."""
        self.commit()
        with self.record.timing("checkpoint"):
            folder = self.keeper.save(self.engine, self._manifest())
        self._saved(folder)

    def _saved(self, folder: Path) -> None:
        self.progress.saved = folder.name
        self.record.saved(self.progress.step, folder.name)

    def _resume(self, elsewhere: Path | None) -> None:
        found = self.keeper.load(self.engine, elsewhere=elsewhere)
        if found is None:
            universal = self.keeper.load_universal(self.engine, elsewhere) if elsewhere else None
            if universal:
                folder, self.progress.step = universal
                self.record.say(f"resumed after step {self.progress.step} from DeepSpeed's universal {folder}")
                return
            if elsewhere or self.assignment.recipe.checkpoint.resume == "required":
                raise CheckpointError(
                    f"there is no whole checkpoint in {elsewhere or self.keeper.directory} to resume from",
                    keys=("checkpoint.resume", "checkpoint.directory"),
                )
            return
        folder, manifest = found
        losses = {name: manifest.losses.get(name) for name in ("first", "last")}
        self.updates_before = manifest.updates - manifest.step
        self.progress = Progress(step=manifest.step, losses={**losses, "evaluation": None}, saved=folder.name)
        self.record.say(f"resumed after step {manifest.step} from {folder}")
        if manifest.data_digest != self.corpora.digest:
            self.record.say("warning: the data, or their order, are not those of the checkpoint: they differ from here")

    def _manifest(self) -> Manifest:
        plan, progress = self.assignment.plan, self.progress
        return Manifest(
            step=progress.step,
            tokens=progress.step * plan.batch.tokens_per_step,
            data_position=progress.step * plan.batch.global_batch_size,
            layout=_layout(self.assignment),
            recipe=redact(codec.encode(self.assignment.recipe)),
            recipe_digest=plan.recipe_digest,
            attempt=int(self.assignment.document.get("attempt", 1)),
            random="a function of training.seed, step and place",
            data_digest=self.corpora.digest,
            losses={name: progress.losses[name] for name in ("first", "last")},
            scalars=self.engine.scalars() | ({UPDATES_BEFORE: self.updates_before} if self.updates_before else {}),
            files=(),
        )


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
