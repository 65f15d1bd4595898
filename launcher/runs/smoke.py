"""``smoke``: a recipe's topology folded small and run for real: trained, saved, killed, resumed to the end.

The killed run goes a few steps beyond its checkpoint, and the resumed run takes the same steps again: on the same
layout their losses are equal bit for bit, so no third run is needed to compare with.
"""

from __future__ import annotations

import math
import os
import re
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from launcher.backends import backend_for
from launcher.backends.local.backend import run_folder
from launcher.backends.local.state import read_state
from launcher.job.build import build_job
from launcher.job.snapshot import take_snapshot
from launcher.plan.fold import fold
from launcher.plan.planner import make_plan
from launcher.runs.checkpoints import Shelf
from launcher.runs.submission import submit
from launcher.runs.watch import wait
from launcher.tracking.metrics import LOSS
from launcher.tracking.spool import all_rows, read_rows
from launcher.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Literal

    from launcher.backends.backend import RunStatus
    from launcher.backends.local.folder import RunFolder
    from launcher.job.spec import JobSpec
    from launcher.plan.fold import Folded
    from launcher.plan.plan import Plan
    from launcher.recipe.schema import Recipe

BEYOND = 2
"""Steps a run goes on after a checkpoint before one of its ranks is killed: these are compared."""
TIMEOUT_SECONDS = 600.0
"""For each of the two runs. A machine that does nothing else takes a tenth of it."""
_POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the smoke run."""

    name: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What the folded recipe's runs did, as far as they got."""

    handles: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    checkpoint_step: int | None = None
    """The checkpoint after which the rank was killed."""
    killed_rank: int | None = None
    compared_steps: tuple[int, ...] = ()
    """Steps taken twice: before the kill, and again after resuming."""
    loss_first: float | None = None
    loss_last: float | None = None
    """Nats per token, at the first and last step."""
    reason: str | None = None
    """Why it failed; None when it passed."""
    log: str | None = None
    """The log that tells more."""


@dataclass(frozen=True, kw_only=True)
class SmokeReport:
    """A recipe's topology, rehearsed on this machine."""

    recipe_name: str
    planned: str
    """The recipe's own topology: ``tensor 8 x pipeline 8 x context 1 x data 16 = 1024``."""
    rehearsed: str
    """The folded one."""
    batch: str
    """The folded batch: ``1 micro x 2 data x 4 accumulation = 8 sequences``."""
    kept: tuple[str, ...]
    folded: tuple[str, ...]
    not_shown: tuple[str, ...]
    verdict: Literal["passed", "failed"]
    rehearsal: Rehearsal

    @property
    def seconds(self) -> float:
        """All phases together."""
        return sum(phase.seconds for phase in self.rehearsal.phases)


def smoke(recipe: Recipe, *, processes: int = 8, root: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> SmokeReport:
    """Rehearse ``recipe`` on at most ``processes`` CPU processes; a rehearsal that fails is a report too.

    Args:
        recipe: What was asked, of any size.
        processes: Ranks this machine may run at once.
        root: Working folder of the ranks.
        timeout_seconds: For each of the two runs.

    Raises:
        PlanError: the recipe has no plan, or runs a script of the team's own.
        BackendError: this machine cannot start runs.
    """
    folded = fold(recipe, processes=processes)
    small = replace(
        folded.recipe, limits=replace(folded.recipe.limits, timeout_hours=timeout_seconds / SECONDS_PER_HOUR)
    )
    plan = make_plan(small)
    refusals = "; ".join(finding.message for finding in plan.errors)
    rehearsal = Rehearsal(reason=refusals) if refusals else _Rehearsing(small, plan, root).run()
    return _report(recipe, folded, plan, rehearsal)


def encode(report: SmokeReport) -> dict[str, Any]:
    """The report as ``--json`` shows it: the rehearsal's fields stand beside the report's own."""
    document = asdict(report)
    rehearsal: dict[str, Any] = document.pop("rehearsal")
    return document | rehearsal | {"seconds": report.seconds}


def _report(recipe: Recipe, folded: Folded, plan: Plan, rehearsal: Rehearsal) -> SmokeReport:
    return SmokeReport(
        recipe_name=recipe.name,
        planned=make_plan(recipe).topology.equation,
        rehearsed=plan.topology.equation,
        batch=plan.batch.equation,
        kept=folded.kept,
        folded=folded.folded,
        not_shown=folded.not_shown,
        verdict="passed" if rehearsal.reason is None else "failed",
        rehearsal=rehearsal,
    )


class _BrokenError(Exception):
    """The rehearsal cannot go on; the reason is its text."""


class _Rehearsing:
    """One rehearsal: what it has done so far."""

    def __init__(self, recipe: Recipe, plan: Plan, root: Path) -> None:
        self._recipe, self._plan, self._snapshot = recipe, plan, take_snapshot(root)
        self._done = Rehearsal()

    def run(self) -> Rehearsal:
        """Both runs, and what they show; nothing is left running, however this ends."""
        try:
            self._rehearse()
        except _BrokenError as broken:
            self._note(reason=str(broken), log=self._telling_log(str(broken)))
        finally:
            for handle in self._done.handles:
                backend_for("local").cancel(handle)
        return self._done

    def _rehearse(self) -> None:
        with self._phase("start, train, save"):
            broken = self._submit()
            shelf = Shelf(run_folder(broken))
            self._run_beyond_checkpoint(broken, shelf)
        with self._phase("kill -9 one rank"):
            checkpoint = self._kill(broken, shelf, rank=self._plan.topology.world_size - 1)
        with self._phase("start, resume, finish"):
            resumed = self._submit(parent=broken, resume_from=str(shelf.directory))
            self._wait_completed(resumed)
        self._compare(run_folder(broken), run_folder(resumed), checkpoint)

    def _submit(self, *, parent: str | None = None, resume_from: str | None = None) -> str:
        job: JobSpec = build_job(self._recipe, self._plan, self._snapshot, resume_from=resume_from)
        handle = submit("local", job, parent=parent).handle
        self._note(handles=(*self._done.handles, handle))
        return handle

    def _run_beyond_checkpoint(self, handle: str, shelf: Shelf) -> None:
        """Wait until the run is some steps beyond a checkpoint."""
        while True:
            saved = shelf.newest()
            if saved is not None and _newest_step(run_folder(handle)) >= saved.step + BEYOND:
                return
            status = backend_for("local").status(handle)
            if status.is_terminal:
                raise _BrokenError(_why(status, "before it could be interrupted"))
            time.sleep(_POLL_SECONDS)

    def _kill(self, handle: str, shelf: Shelf, *, rank: int) -> int:
        """Kill one rank and see the run end; the step of the newest checkpoint it left."""
        with suppress(ProcessLookupError):
            os.kill(read_state(run_folder(handle).state).ranks[str(rank)], signal.SIGKILL)
        status = wait(handle)
        if status.state != "Failed":
            raise _BrokenError(_why(status, f"although rank {rank} was killed"))
        saved = shelf.newest()
        if saved is None:
            raise _BrokenError("the checkpoint is gone after the kill")
        self._note(killed_rank=rank, checkpoint_step=saved.step)
        return saved.step

    def _wait_completed(self, handle: str) -> None:
        status = wait(handle)
        if status.state != "Completed":
            raise _BrokenError(_why(status, "after it was resumed"))

    def _compare(self, broken: RunFolder, resumed: RunFolder, checkpoint: int) -> None:
        """The second run begins after the checkpoint; what both did is equal, and the loss falls."""
        steps = self._plan.batch.train_steps
        before, after = _losses(broken), _losses(resumed)
        twice = _after(checkpoint, before)
        self._note(compared_steps=twice, loss_first=_finite(after.get(1)), loss_last=_finite(after.get(steps)))
        begun = _first_step(resumed)
        faults = list(resume_faults(before, after, checkpoint=checkpoint, begun=begun, steps=steps))
        if faults:
            raise _BrokenError("; ".join(faults))

    def _telling_log(self, reason: str) -> str | None:
        """The log of the rank the reason names, of the first rank otherwise."""
        if not self._done.handles:
            return None
        named = re.search(r"\brank (\d+)\b", reason)
        return str(run_folder(self._done.handles[-1]).log(int(named[1]) if named else 0))

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self._note(phases=(*self._done.phases, Phase(name=name, seconds=time.monotonic() - begun)))

    def _note(self, **fields: Any) -> None:
        self._done = replace(self._done, **fields)


def resume_faults(
    before: dict[int, float], after: dict[int, float], *, checkpoint: int, begun: int, steps: int
) -> Iterator[str]:
    """What is wrong with the losses, by step, of a killed run and of the one that resumed it.

    Args:
        before: Of the killed run.
        after: Of the whole curve: the killed run's up to the checkpoint, the resumed run's from there on.
        checkpoint: The step it was resumed from.
        begun: The first step that the resumed run took.
        steps: The last step there should be.
    """
    if begun != checkpoint + 1:
        yield f"resumed with step {begun} and not with step {checkpoint + 1}"
    missing = [step for step in range(1, steps + 1) if step not in after]
    if missing:
        yield f"no loss of step {missing[0]} was recorded"
        return
    if not all(map(math.isfinite, after.values())):
        yield "a loss is not finite"
    twice = _after(checkpoint, before)
    for step in twice:
        if before[step] != after[step]:
            yield f"step {step} had loss {before[step]!r} before the kill and {after[step]!r} after resuming"
    if not twice:
        yield "no step was taken twice, so resuming was not compared"
    if after[steps] >= after[1]:
        yield f"the loss did not fall: {after[1]:.4f} at step 1, {after[steps]:.4f} at step {steps}"


def _after(checkpoint: int, losses: dict[int, float]) -> tuple[int, ...]:
    return tuple(step for step in sorted(losses) if step > checkpoint)


def _why(status: RunStatus, when: str) -> str:
    return f"the run is {status.state} {when}" + (f": {status.reason}" if status.reason else "")


def _newest_step(folder: RunFolder) -> int:
    return max((row.step for row in all_rows(folder.metrics) if LOSS in row.metrics), default=0)


def _first_step(folder: RunFolder) -> int:
    """The step with which the newest attempt began; the spool holds those of the run it continues, too."""
    rows = [row for row in all_rows(folder.metrics) if LOSS in row.metrics]
    newest = max((row.attempt for row in rows), default=0)
    return min((row.step for row in rows if row.attempt == newest), default=0)


def _finite(loss: float | None) -> float | None:
    """What JSON can hold."""
    return loss if loss is not None and math.isfinite(loss) else None


def _losses(folder: RunFolder) -> dict[int, float]:
    return {row.step: row.metrics[LOSS] for row in read_rows(folder.metrics) if LOSS in row.metrics}
