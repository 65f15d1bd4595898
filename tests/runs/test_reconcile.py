"""What the journal says of a submission that did not end well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.errors import BackendError, LauncherError, UnknownOutcomeError
from launcher.runs import journal
from launcher.runs.reconcile import journaled
from tests.runs.test_journal import row

if TYPE_CHECKING:
    from launcher.backends.backend import Submission
    from launcher.runs.journal import SubmissionState

pytestmark = pytest.mark.usefixtures("launcher_home")

REFUSAL = BackendError("no", code="azureml.refused")
DOUBT = UnknownOutcomeError("perhaps", code="unknown_outcome.azureml")


def failing(error: BaseException) -> str:
    """The row's state after a submission that ends with ``error``."""

    def submit() -> Submission:
        raise error

    with pytest.raises(LauncherError):
        journaled(row("sent", state="PLANNED"), submit)
    return journal.find(row("sent").handle).state


def test_a_first_submission_is_refused_or_in_doubt() -> None:
    assert failing(REFUSAL) == "REFUSED"
    assert failing(DOUBT) == "UNKNOWN"


@pytest.mark.parametrize("earlier", ["PLANNED", "UNKNOWN", "SUBMITTED"])
def test_a_refusal_does_not_settle_an_earlier_submission_that_may_have_been_accepted(earlier: SubmissionState) -> None:
    journal.record(row("sent", state=earlier))

    assert failing(REFUSAL) == earlier


def test_doubt_never_takes_back_what_is_known() -> None:
    journal.record(row("sent", state="SUBMITTED"))

    assert failing(DOUBT) == "SUBMITTED"
    assert failing(KeyboardInterrupt()) == "SUBMITTED"


def test_what_was_refused_is_open_again_while_it_is_sent_again() -> None:
    journal.record(row("sent", state="REFUSED"))
    seen = []

    def submit() -> Submission:
        seen.append(journal.find(row("sent").handle).state)
        raise REFUSAL

    with pytest.raises(BackendError):
        journaled(row("sent", state="PLANNED"), submit)
    assert (seen, journal.find(row("sent").handle).state) == (["PLANNED"], "REFUSED")
