"""Once: however often the same thing is submitted, by whoever, whatever breaks on the way, there is one job.

The job's name is derived from its intent, and the service keeps names unique: the name is the lock. Before the PUT we
ask whether the job is there; after anything but a clear answer we ask again, and adopt what we find, or stop if it is
another thing under our name. A time-out is never a failure, and nothing is ever sent under a second name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from launcher.backends.azureml.failure import DoubtError, ExistsError
from launcher.errors import BackendError, UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.backends.azureml.client import JobView
    from launcher.backends.azureml.patience import Patience

FINGERPRINT = "launcher.intent"
"""Property of a job: the intent's digest. Properties cannot be edited afterwards; tags can."""


COLLISION = "azureml.collision"
"""Another job has our name: ours was not accepted and never will be."""
_SILENT = frozenset({"azureml.network", "azureml.unavailable"})
"""Errors that say nothing of the job."""
_UNSETTLED = frozenset({"azureml.network", "azureml.conflict"})
"""Answers to a PUT after which a job that does not show may still be there, or come."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The one job."""

    job: JobView
    was_there: bool
    """Whether it was found before anything was sent."""


class Service(Protocol):
    """What the protocol needs of a workspace."""

    def find_job(self, name: str) -> JobView | None:
        """The job of this name, or None."""
        ...


def submit_once(
    service: Service, name: str, fingerprint: str, ready: Callable[[], Callable[[], JobView]], patience: Patience
) -> Outcome:
    """The one job called ``name``: sent now, or found there already.

    Args:
        service: The workspace.
        name: Derived from the intent.
        fingerprint: The intent's digest, to tell our job from another of the same name.
        ready: Uploads what the job needs, and gives back what PUTs it, the same bytes every time.
        patience: How long to go on.

    Raises:
        BackendError: refused for certain; nothing was accepted.
        UnknownOutcomeError: it may have been accepted, and nobody answers.
    """
    found = _adopted(service.find_job(name), name, fingerprint)
    if found is not None:
        return Outcome(job=found, was_there=True)
    settled = _Settling(service, name, fingerprint, ready(), patience).outcome()
    return Outcome(job=settled, was_there=False)


def _adopted(found: JobView | None, name: str, fingerprint: str) -> JobView | None:
    """The job found, if it is ours; None if none was.

    Raises:
        BackendError: it is another thing under our name.
    """
    if found is None:
        return None
    theirs = found.properties.get(FINGERPRINT) or found.tags.get(FINGERPRINT) or "none"
    if theirs != fingerprint:
        raise BackendError(
            f"job {name} is there, and it is another: its fingerprint is {theirs[:16]}, ours is {fingerprint[:16]}",
            suggestion="launcher submit ... --attempt 2",
            code=COLLISION,
        )
    return found


def _never_left(refusal: BackendError) -> bool:
    """Whether there was no connection at all; one that fails now may come back."""
    return refusal.faults[0].code == "azureml.network"


class _Settling:
    """Sends, and after anything but a clear answer looks whether the job is there."""

    def __init__(
        self, service: Service, name: str, fingerprint: str, send: Callable[[], JobView], patience: Patience
    ) -> None:
        self._service = service
        self._name = name
        self._fingerprint = fingerprint
        self._send = send
        self._patience = patience
        self._is_doubtful = False
        """Whether some attempt may have been accepted."""

    def outcome(self) -> JobView:
        """The job, or an error that says what is known."""
        last: Exception | None = None
        for pause in self._patience.pauses(self._patience.settle_seconds):
            try:
                return self._ours(self._send())
            except (DoubtError, ExistsError) as doubt:
                self._is_doubtful, last = True, doubt
            except BackendError as refusal:
                self._is_doubtful, last = self._is_doubtful or not _never_left(refusal), refusal
            try:
                found = _adopted(self._service.find_job(self._name), self._name, self._fingerprint)
            except BackendError as error:
                self._require_doubt(error)
            else:
                self._require_hope(last, found)
                if found is not None:
                    return found
            self._patience.sleep(pause)
        raise self._unknown(last)

    def _ours(self, accepted: JobView) -> JobView:
        """What the service answered: the job as sent, or one that had the name before."""
        _adopted(accepted, self._name, self._fingerprint)
        return accepted

    def _require_doubt(self, error: BackendError) -> None:
        """A look that fails shows nothing: it is final only where nothing can have been accepted."""
        code = error.faults[0].code
        if code == COLLISION or (code not in _SILENT and not self._is_doubtful):
            raise error

    def _require_hope(self, last: Exception, found: JobView | None) -> None:
        """A refusal is final once the service also says that there is no such job.

        A conflict is not: it may be with our own job, accepted and not yet shown.
        """
        if found is None and isinstance(last, BackendError) and last.faults[0].code not in _UNSETTLED:
            raise last

    def _unknown(self, last: Exception | None) -> BackendError | UnknownOutcomeError:
        if not self._is_doubtful and isinstance(last, BackendError):
            return last
        return UnknownOutcomeError(
            f"job {self._name} may or may not have been accepted: {last}",
            suggestion=f"launcher reconcile azureml:{self._name}",
            code="unknown_outcome.azureml",
        )
