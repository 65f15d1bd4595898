"""Submissions to a service, on disk before they are sent, and settled afterwards whatever happened in between.

The row is PLANNED and synced before the first request; it becomes SUBMITTED, REFUSED, or UNKNOWN. A process that dies
anywhere leaves a row that ``reconcile`` finishes by asking the service for the job's name.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, cast

from launcher.backends import backend_for
from launcher.errors import LauncherError, UnknownOutcomeError
from launcher.runs import journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from launcher.backends.backend import Submission
    from launcher.job.spec import JobSpec
    from launcher.runs.journal import Row, SubmissionState

VISIBLE_AFTER = timedelta(minutes=10)
"""A job that the service has not shown by then was not accepted."""
OPEN_STATES: frozenset[str] = frozenset({"PLANNED", "UNKNOWN"})


class Remote(Protocol):
    """A backend whose runs live elsewhere."""

    def submit(self, job: JobSpec) -> Submission:
        """Send the job once."""
        ...

    def find(self, handle: str) -> Submission | None:
        """The submission of a handle, if the service has it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A row, and what it was before it was looked at."""

    row: Row
    before: SubmissionState

    @property
    def is_open(self) -> bool:
        """Whether it is still not known what became of it."""
        return self.row.state in OPEN_STATES


def submit_journaled(backend: str, job: JobSpec, *, parent: str | None = None) -> Submission:
    """Send ``job``, with its row on disk before and its fate on disk after.

    Raises:
        BackendError: refused; or the row cannot be made durable, and then nothing is sent.
        UnknownOutcomeError: it may have been accepted.
    """
    row = journal.row_of(backend, job, state="PLANNED", parent=parent)
    return journaled(row, lambda: _remote(backend).submit(job))


def journaled(row: Row, submit: Callable[[], Submission]) -> Submission:
    """Do ``submit``, with ``row`` on disk before and its fate on disk after; one process of this machine at a time."""
    with journal.held(row.handle):
        row, is_first = _opened(row)
        with _fate(row, is_first=is_first):
            submission = submit()
            journal.update(row, state="SUBMITTED", url=submission.url)
    return submission


def _opened(row: Row) -> tuple[Row, bool]:
    """The row on disk, open before anything is sent; and whether nothing can have been accepted under it so far."""
    if journal.record(row):
        return row, True
    known = journal.find(row.handle)
    if known.state == "REFUSED":
        return journal.update(known, state="PLANNED"), True
    return known, False


def reconcile(handle: str | None = None) -> tuple[Settled, ...]:
    """Ask the service what became of every submission that is open, or of one; rows are brought up to date.

    Raises:
        NoSuchRunError: no submission has this handle.
        BackendError: the service does not answer.
    """
    wanted = (journal.find(handle),) if handle else journal.rows()
    remote = (row for row in wanted if row.backend != "local" and (handle or row.state in OPEN_STATES))
    return tuple(_settle(row) for row in remote)


def _settle(row: Row) -> Settled:
    with journal.held(row.handle):
        now = journal.find(row.handle)
        found = _remote(row.backend).find(row.handle)
        if found is not None:
            return Settled(row=journal.update(now, state="SUBMITTED", url=found.url), before=row.state)
        age = datetime.now(UTC) - datetime.fromisoformat(now.created_at)
        if age >= VISIBLE_AFTER and now.state in OPEN_STATES:
            now = journal.update(now, state="REFUSED")
        return Settled(row=now, before=row.state)


@contextmanager
def _fate(row: Row, *, is_first: bool) -> Iterator[None]:
    """Write down how a submission ended that did not end well.

    A refusal settles the first one alone: it does not tell what became of an earlier one that nobody answered.
    """
    try:
        yield
    except UnknownOutcomeError:
        _doubt(row)
        raise
    except KeyboardInterrupt:
        _doubt(row)
        raise UnknownOutcomeError(
            f"interrupted while {row.handle} was being submitted: it may or may not have been accepted",
            suggestion=f"launcher reconcile {row.handle}",
            code="unknown_outcome.interrupted",
        ) from None
    except LauncherError:
        if is_first:
            journal.update(row, state="REFUSED")
        raise


def _doubt(row: Row) -> None:
    if row.state != "SUBMITTED":
        journal.update(row, state="UNKNOWN")


def _remote(backend: str) -> Remote:
    return cast("Remote", backend_for(backend))
