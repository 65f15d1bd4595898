"""Following a local run: where it stands, how far it is, and when it will be done.

Everything is read from the run's own folder, so a watcher may come, go, and come again without the run noticing.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.backends import backend_for, parse_handle
from launcher.backends.backend import TERMINAL
from launcher.backends.local.backend import run_folder
from launcher.backends.local.state import read_state
from launcher.runs.checkpoints import Shelf
from launcher.tracking import metrics
from launcher.tracking.spool import rows_after

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.backend import RunStatus, State
    from launcher.backends.local.folder import RunFolder
    from launcher.backends.local.state import RunState
    from launcher.tracking.spool import Row

_POLL_SECONDS = 0.2
_RECENT_ROWS = 50
"""The pace is taken from these, so that the ETA follows a run that slows down."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A run at one moment; None is what is not known (yet)."""

    state: State
    reason: str | None = None
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    evaluation_loss: float | None = None
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    peak_memory_bytes: float | None = None
    dollars: float | None = None
    elapsed_seconds: float = 0.0
    """Since submission; stands still once the run has ended."""
    eta_seconds: float | None = None
    """To the last step, at the recent pace, evaluations and checkpoints included."""
    last_checkpoint_step: int | None = None
    restarts: int = 0
    stages: tuple[tuple[str, float], ...] = ()
    """Ends of what came before the first step, in seconds since submission: ``started``, ``rendezvous and model``,
    ``first step``; those that are known."""


def progress(handle: str, *, poll_seconds: float = _POLL_SECONDS) -> Iterator[Progress]:
    """The run's progress whenever something changed, first at once, last when it has ended.

    Raises:
        NoSuchRunError: there is no such run here.
    """
    if parse_handle(handle)[0] != "local":
        from launcher.runs.remote_watch import remote_progress

        return remote_progress(handle)
    return _changes(_Watcher(handle), poll_seconds)


def wait(handle: str, *, timeout_seconds: float | None = None) -> RunStatus:
    """The status once the run has ended, or after ``timeout_seconds``: look at ``is_terminal``.

    Raises:
        NoSuchRunError: there is no such run.
    """
    backend = backend_for(parse_handle(handle)[0])
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while not (status := backend.status(handle)).is_terminal:
        if deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    return status


def _changes(watcher: _Watcher, poll_seconds: float) -> Iterator[Progress]:
    seen: tuple[object, ...] | None = None
    while True:
        now = watcher.look()
        shown = (now.state, now.step, now.last_checkpoint_step, now.restarts, now.evaluation_loss)
        if shown != seen:
            seen = shown
            yield now
        if now.state in TERMINAL:
            return
        time.sleep(poll_seconds)


class _Watcher:
    """Reads what is new in a run's folder and remembers the rest."""

    def __init__(self, handle: str) -> None:
        self._handle = handle
        self._folder = run_folder(handle)
        self._shelf = Shelf(self._folder)
        self._total_steps = _total_steps(self._folder)
        self._submitted = read_state(self._folder.state).times.get("NotStarted", 0.0)
        self._offset = 0
        self._newest: dict[str, float] = {}
        self._recent: deque[Row] = deque(maxlen=_RECENT_ROWS)
        self._ready_at: float | None = None
        self._first_step_at: float | None = None

    def look(self) -> Progress:
        """Where the run stands now."""
        status = backend_for("local").status(self._handle)
        state = read_state(self._folder.state)
        self._read_rows()
        now = time.time()
        submitted = state.times.get("NotStarted", now)
        saved = self._shelf.newest()
        return Progress(
            state=status.state,
            reason=status.reason,
            step=self._recent[-1].step if self._recent else None,
            total_steps=self._total_steps,
            loss=self._newest.get(metrics.LOSS),
            evaluation_loss=self._newest.get(metrics.EVALUATION_LOSS),
            learning_rate=self._newest.get(metrics.LEARNING_RATE),
            tokens_per_second=self._newest.get(metrics.TOKENS_PER_SECOND),
            mfu=self._newest.get(metrics.MFU),
            peak_memory_bytes=self._newest.get(metrics.PEAK_MEMORY_BYTES),
            dollars=self._newest.get(metrics.DOLLARS),
            elapsed_seconds=(state.times.get(status.state, now) if status.is_terminal else now) - submitted,
            eta_seconds=None if status.is_terminal else self._eta(now),
            last_checkpoint_step=saved.step if saved else None,
            restarts=state.restarts,
            stages=self._stages(state, submitted),
        )

    def _read_rows(self) -> None:
        while True:
            rows, offset = rows_after(self._folder.metrics, self._offset)
            if offset == self._offset:
                return
            self._offset = offset
            for row in rows:
                self._take(row)

    def _take(self, row: Row) -> None:
        """A row of metrics; one without any marks where an attempt begins, and the pace is measured anew.

        A continued run starts with its parent's rows, which are older than its own submission.
        """
        is_own = row.time >= self._submitted
        if not row.metrics:
            if is_own and self._ready_at is None:
                self._ready_at = row.time
            self._recent.clear()
            return
        if is_own and self._first_step_at is None:
            self._first_step_at = row.time
        self._newest |= row.metrics
        self._recent.append(row)

    def _eta(self, now: float) -> float | None:
        """Steps left at the pace of the recent rows, less the time since the newest one."""
        if self._total_steps is None or len(self._recent) < 2:
            return None
        first, last = self._recent[0], self._recent[-1]
        if last.step <= first.step:
            return None
        step_seconds = (last.time - first.time) / (last.step - first.step)
        return max(0.0, (self._total_steps - last.step) * step_seconds - (now - last.time))

    def _stages(self, state: RunState, submitted: float) -> tuple[tuple[str, float], ...]:
        moments = (
            ("started", state.times.get("Running")),
            ("rendezvous and model", self._ready_at),
            ("first step", self._first_step_at),
        )
        return tuple((name, moment - submitted) for name, moment in moments if moment is not None)


def _total_steps(folder: RunFolder) -> int | None:
    """Optimizer steps the plan promised; None for a plan that promises none."""
    planned = json.loads(folder.plan.read_bytes()).get("batch", {}).get("train_steps")
    return None if planned is None else int(planned)
