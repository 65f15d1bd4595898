"""Following a run on Azure ML: its state and reason, and the newest metrics its trainer has logged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from launcher.backends import parse_handle
from launcher.backends.azureml.backend import AzureMLBackend
from launcher.backends.azureml.known import known_plan
from launcher.backends.backend import TERMINAL
from launcher.errors import BackendError
from launcher.runs.watch import Progress
from launcher.tracking import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.backends.azureml.backend import Latest
    from launcher.backends.backend import RunStatus

POLL_SECONDS = 2.0
_MOST_FAILURES = 30
"""Looks in a row that may fail before the watcher gives up: a laptop that sleeps, a network that comes back."""


def remote_progress(handle: str, *, poll_seconds: float = POLL_SECONDS) -> Iterator[Progress]:
    """The run's progress whenever something changed, first at once, last when it has ended.

    Raises:
        NoSuchRunError: the workspace has no such run.
        BackendError: the service has not answered for a long time.
    """
    watcher, seen, failures = _RemoteWatcher(handle), None, 0
    while True:
        try:
            now, failures = watcher.look(), 0
        except BackendError:
            failures += 1
            if failures > _MOST_FAILURES:
                raise
            time.sleep(poll_seconds)
            continue
        shown = (now.state, now.reason, now.step, now.last_checkpoint_step, now.evaluation_loss)
        if shown != seen:
            seen = shown
            yield now
        if now.state in TERMINAL:
            return
        time.sleep(poll_seconds)


class _RemoteWatcher:
    """Asks for state and metrics, and remembers when each state was first seen."""

    def __init__(self, handle: str) -> None:
        self._handle = handle
        self._backend = AzureMLBackend()
        self._total_steps = _total_steps(known_plan(parse_handle(handle)[1]))
        self._began = time.time()
        self._stages: dict[str, float] = {}

    def look(self) -> Progress:
        """Where the run stands now."""
        status = self._backend.status(self._handle)
        newest = self._backend.metrics(self._handle) if status.state in ("Running", "Finalizing", *TERMINAL) else {}
        self._remember(status, newest)
        step = newest.get(metrics.LOSS)
        return Progress(
            state=status.state,
            reason=status.reason,
            step=step.step if step else None,
            total_steps=self._total_steps,
            **_figures(newest),
            elapsed_seconds=time.time() - self._began,
            eta_seconds=None if status.is_terminal else self._eta(newest),
            last_checkpoint_step=newest[metrics.CHECKPOINT_SECONDS].step
            if metrics.CHECKPOINT_SECONDS in newest
            else None,
            stages=tuple(self._stages.items()),
        )

    def _remember(self, status: RunStatus, newest: dict[str, Latest]) -> None:
        now = time.time() - self._began
        self._stages.setdefault(status.state.lower(), now)
        if metrics.LOSS in newest:
            self._stages.setdefault("first step", now)

    def _eta(self, newest: dict[str, Latest]) -> float | None:
        """Steps left at the pace of the newest one."""
        loss, pace = newest.get(metrics.LOSS), newest.get(metrics.STEP_SECONDS)
        if self._total_steps is None or loss is None or pace is None:
            return None
        return max(0.0, (self._total_steps - loss.step) * pace.value)


def _figures(newest: dict[str, Latest]) -> dict[str, Any]:
    names = {
        "loss": metrics.LOSS,
        "evaluation_loss": metrics.EVALUATION_LOSS,
        "learning_rate": metrics.LEARNING_RATE,
        "tokens_per_second": metrics.TOKENS_PER_SECOND,
        "mfu": metrics.MFU,
        "peak_memory_bytes": metrics.PEAK_MEMORY_BYTES,
        "dollars": metrics.DOLLARS,
    }
    return {field: newest[name].value for field, name in names.items() if name in newest}


def _total_steps(plan: dict[str, Any] | None) -> int | None:
    steps = (plan or {}).get("batch", {}).get("train_steps")
    return None if steps is None else int(steps)
