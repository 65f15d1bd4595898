"""Submitting, with a row in the journal for whatever becomes of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from launcher.backends import backend_for
from launcher.errors import BackendError
from launcher.runs import journal
from launcher.runs.reconcile import submit_journaled

if TYPE_CHECKING:
    from launcher.backends.backend import Submission
    from launcher.job.spec import JobSpec


def submit(backend: str, job: JobSpec, *, parent: str | None = None) -> Submission:
    """Send ``job`` to ``backend`` and journal it; ``parent`` is the handle of the run it continues.

    A local run's folder is its own durable record, made before the first process starts; the row follows it, with the
    attempt that was free. So a run that has started is not called refused because its row cannot be written: the
    journal finds the folder. A run elsewhere has its row before anything is sent.
    """
    if backend != "local":
        return submit_journaled(backend, job, parent=parent)
    submission = backend_for(backend).submit(job)
    with suppress(BackendError):
        journal.record(journal.accepted(submission, job, parent=parent))
    return submission
