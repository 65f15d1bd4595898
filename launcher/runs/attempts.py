"""Carrying a run to its end over preemptions and bad nodes: attempt after attempt, within a budget of attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from launcher.backends import backend_for, parse_handle
from launcher.errors import UsageError
from launcher.runs import journal
from launcher.runs.diagnose import diagnose
from launcher.runs.reconcile import journaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.backends.backend import RunStatus, Submission
    from launcher.runs.diagnose import Diagnosis

MOST_WITHOUT_PROGRESS = 3
"""Attempts in a row that gain no step before it is the code's fault (NVRx stops after as many)."""


class Resubmitting(Protocol):
    """A backend that can send the next attempt."""

    def resubmit(self, handle: str) -> Submission:
        """Send the attempt after this one."""
        ...

    def status(self, handle: str) -> RunStatus:
        """Where the run stands."""
        ...


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How an attempt ended, and how far it came."""

    status: RunStatus
    diagnosis: Diagnosis | None
    """None of a run that completed."""
    step: int | None
    """The last step it logged."""


def carry(
    handle: str,
    *,
    attempts: int,
    watch: Callable[[str], int | None],
    say: Callable[[str], None],
    also_user_code: bool = False,
) -> Ending:
    """Watch a run to its end; while another attempt may do better, send it and watch that.

    Args:
        handle: The run.
        attempts: How many more may be sent.
        watch: Follows a run to its end and gives back the last step it saw.
        say: Tells a person what happens.
        also_user_code: Whether the code's own failures are tried again too.

    Raises:
        UsageError: the backend restarts runs itself.
    """
    backend = _resubmitting(handle) if attempts else None
    best, idle = -1, 0
    while True:
        ending = _ending(handle, watch(handle))
        idle = 0 if (ending.step or -1) > best else idle + 1
        best = max(best, ending.step or -1)
        if ending.diagnosis is None or backend is None or not _deserves(ending.diagnosis, also_user_code):
            return ending
        if attempts == 0 or idle >= MOST_WITHOUT_PROGRESS:
            say(f"no further attempt: {'none left' if attempts == 0 else f'{idle} gained no step'}")
            return ending
        attempts -= 1
        following = next_attempt(handle)
        say(f"{handle} ended: {ending.diagnosis.what}; next attempt {following.handle}")
        handle = following.handle


def next_attempt(handle: str) -> Submission:
    """Send the attempt after ``handle``, journaled like any submission."""
    earlier = journal.find(handle)
    stem, _, attempt = earlier.name.rpartition("-")
    row = journal.Row(
        backend=earlier.backend,
        name=f"{stem}-{int(attempt) + 1}",
        state="PLANNED",
        intent=earlier.intent,
        attempt=int(attempt) + 1,
        recipe=earlier.recipe,
        recipe_digest=earlier.recipe_digest,
        plan_digest=earlier.plan_digest,
        experiment=earlier.experiment,
        parent=handle,
    )
    return journaled(row, lambda: _resubmitting(handle).resubmit(handle))


def _ending(handle: str, step: int | None) -> Ending:
    status = backend_for(parse_handle(handle)[0]).status(handle)
    failed = status.state != "Completed"
    return Ending(status=status, diagnosis=diagnose(handle) if failed else None, step=step)


def _deserves(diagnosis: Diagnosis, also_user_code: bool) -> bool:
    if diagnosis.kind in ("canceled", "timeout", "plan"):
        return False
    return diagnosis.may_pass or also_user_code


def _resubmitting(handle: str) -> Resubmitting:
    backend = parse_handle(handle)[0]
    if backend == "local":
        raise UsageError(
            "a local run restarts itself",
            suggestion="limits.max_restarts=2 when it is submitted",
            code="usage.resubmit",
        )
    return cast("Resubmitting", backend_for(backend))
