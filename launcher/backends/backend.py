"""The Backend protocol: five verbs, and the three nouns they speak in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from launcher.job.spec import JobSpec

State = Literal[
    "NotStarted", "Queued", "Preparing", "Running", "Finalizing", "CancelRequested", "Completed", "Failed", "Canceled"
]
"""Azure ML's own words."""
TERMINAL: frozenset[str] = frozenset({"Completed", "Failed", "Canceled"})


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A run that was accepted. Re-readable from the text of its handle."""

    handle: str
    """``local:NAME`` or ``azureml:NAME``."""
    url: str | None
    """Where a person can look: a folder as file:// URI, or the studio."""
    submitted_at: str
    """ISO 8601, UTC."""
    was_there: bool = False
    """Whether it is a run of the same intent that was accepted before, and nothing was sent now."""
    state: State = "NotStarted"
    """Where it stood when it was submitted, or found."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Azure ML's state word plus a reason."""

    handle: str
    state: State
    reason: str | None = None
    exit_code: int | None = None
    """Of the first rank that failed, when one did."""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in TERMINAL


class Backend(Protocol):
    """A place where a job can run. ``render`` thinks; the rest acts."""

    def render(self, job: JobSpec) -> str:
        """What would be sent, as text a person can read and run. No network, no SDK."""
        ...

    def submit(self, job: JobSpec) -> Submission:
        """Start the job."""
        ...

    def status(self, handle: str) -> RunStatus:
        """Where the run stands.

        Raises:
            NoSuchRunError: no run has this handle.
        """
        ...

    def logs(self, handle: str, *, rank: int | None = None, follow: bool = False) -> Iterator[str]:
        """Lines of one rank's log, or of all ranks (prefixed) when ``rank`` is None; ends when the run ends."""
        ...

    def cancel(self, handle: str) -> RunStatus:
        """End the run; harmless on one that has ended. Returns once nothing is left running (local) or accepted."""
        ...
