"""The tree of errors a person can mend, and their exit codes.

LauncherError                 what happened; every fault at once
|-- UsageError           2    the command line itself is wrong
|-- RecipeError          3    a recipe cannot be composed or decoded
|-- PlanError            3    a recipe is well-formed but cannot run
|-- DataError            3    a corpus, a shard or a tokenizer cannot be read (launcher/training/data)
|-- BackendError         4    the place where it should run refused (sign-in, quota, network)
|   `-- MissingExtraError 4   an optional package is not installed
|-- BudgetError          5    dearer than ``limits.budget_dollars``
|-- NoSuchRunError       6    no run of that name
|-- UnknownOutcomeError 75    it may or may not have happened: ``launcher reconcile``
`-- RunFailedError       1    the run itself failed

An error knows *keys*; the command line adds file and line from the recipe's origins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class ExitCode(IntEnum):
    """What the shell sees. The table is part of the interface (README, "Exit codes")."""

    DONE = 0
    RUN_FAILED = 1
    USAGE = 2
    REFUSED = 3
    BACKEND = 4
    BUDGET = 5
    NO_SUCH_RUN = 6
    DEFECT = 70
    """A fault of ours (EX_SOFTWARE of sysexits.h): no ``LauncherError`` has it."""
    UNKNOWN_OUTCOME = 75
    TIMED_OUT = 124
    INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong, in the user's own words and values."""

    what: str
    """One sentence, no full stop: ``6-way tensor parallelism does not divide 40 attention heads``."""
    keys: tuple[str, ...] = ()
    """Dotted recipe keys involved, most guilty first; ``where`` is looked up from them."""
    where: str | None = None
    """``file:line`` or the override as typed, when the raiser knows it (else found from ``keys``)."""
    allowed: str | None = None
    """What would be accepted, as text."""
    suggestion: str | None = None
    """What to try, as text that can be pasted."""
    code: str = ""
    """Stable, dotted: ``plan.tensor_heads``."""


class LauncherError(Exception):
    """Something a person can mend. Carries every fault found, worst first."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE
    code: ClassVar[str] = "launcher"

    def __init__(self, faults: str | Fault | Sequence[Fault], /, **fields: str | tuple[str, ...] | None) -> None:
        if isinstance(faults, str):
            faults = Fault(what=faults)
        if isinstance(faults, Fault):
            faults = (replace(faults, **fields),)  # type: ignore[arg-type]
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__("; ".join(fault.what for fault in self.faults))


class UsageError(LauncherError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE
    code = "usage"


class RecipeError(LauncherError):
    """A recipe cannot be composed or decoded."""

    exit_code = ExitCode.REFUSED
    code = "recipe"


class PlanError(LauncherError):
    """A recipe is well-formed but cannot run."""

    exit_code = ExitCode.REFUSED
    code = "plan"


class BackendError(LauncherError):
    """The place where the job should run refused."""

    exit_code = ExitCode.BACKEND
    code = "backend"


class MissingExtraError(BackendError):
    """An optional package is not installed; the text says which command installs it."""

    code = "missing_extra"


class BudgetError(LauncherError):
    """The plan is dearer than the budget allows."""

    exit_code = ExitCode.BUDGET
    code = "budget"


class NoSuchRunError(LauncherError):
    """No run has this handle."""

    exit_code = ExitCode.NO_SUCH_RUN
    code = "no_such_run"


class UnknownOutcomeError(LauncherError):
    """A request may or may not have been accepted; ``launcher reconcile`` finds out."""

    exit_code = ExitCode.UNKNOWN_OUTCOME
    code = "unknown_outcome"


class RunFailedError(LauncherError):
    """The run ended in Failed or Canceled."""

    exit_code = ExitCode.RUN_FAILED
    code = "run_failed"
