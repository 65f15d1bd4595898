"""The protocol alone: a service that is a few lines, so that every order of events can be set up."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.backends.azureml.client import JobView
from launcher.backends.azureml.failure import DoubtError, ExistsError
from launcher.backends.azureml.patience import Patience
from launcher.backends.azureml.submission import FINGERPRINT, submit_once
from launcher.errors import BackendError, ExitCode, UnknownOutcomeError

NAME, OURS = "run-5d0c91aa7be2f013-1", "a" * 64


def view(fingerprint: str = OURS) -> JobView:
    return JobView(
        name=NAME, state="NotStarted", tags={}, properties={FINGERPRINT: fingerprint}, studio_url=None, document={}
    )


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def sleep(self, seconds: float) -> None:
        self.time += max(seconds, 0.01)

    def patience(self) -> Patience:
        return Patience(now=lambda: self.time, sleep=self.sleep, settle_seconds=300)


class Scripted:
    """Answers GETs and PUTs as the test says, one after the other; the last answer stays."""

    def __init__(self, finds: list[Any], sends: list[Any]) -> None:
        self.finds, self.sends = finds, sends
        self.sent = 0

    def find_job(self, name: str) -> JobView | None:
        return self._next(self.finds)  # type: ignore[no-any-return]

    def send(self) -> JobView:
        self.sent += 1
        return self._next(self.sends)  # type: ignore[no-any-return]

    def _next(self, script: list[Any]) -> Any:
        answer = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def submit(service: Scripted, clock: Clock | None = None) -> JobView:
    return submit_once(service, NAME, OURS, lambda: service.send, (clock or Clock()).patience()).job


def refused(code: str) -> BackendError:
    return BackendError("no", code=code)


def test_a_job_that_is_not_there_is_sent_once() -> None:
    service = Scripted([None], [view()])
    assert submit(service).name == NAME
    assert service.sent == 1


def test_a_job_that_is_there_already_is_adopted_and_nothing_is_sent() -> None:
    service = Scripted([view()], [view()])
    submit(service)
    assert service.sent == 0


def test_another_job_of_the_same_name_stops_us_with_both_fingerprints() -> None:
    with pytest.raises(BackendError, match=r"b{16}, ours is a{16}") as caught:
        submit(Scripted([view("b" * 64)], [view()]))
    assert "--attempt" in (caught.value.faults[0].suggestion or "")


def test_after_a_timeout_the_job_that_was_accepted_is_found_not_sent_again() -> None:
    service = Scripted([None, view()], [DoubtError("time-out")])
    submit(service)
    assert service.sent == 1


def test_a_job_that_shows_late_is_waited_for() -> None:
    service = Scripted([None, None, None, view()], [DoubtError("reset"), ExistsError("already exists")])
    assert submit(service).name == NAME


def test_a_lost_request_is_sent_again_under_the_same_name() -> None:
    service = Scripted([None], [DoubtError("reset"), view()])
    submit(service)
    assert service.sent == 2


def test_the_service_saying_it_exists_is_our_own_job_coming_back() -> None:
    service = Scripted([None, view()], [ExistsError("A job with this name already exists")])
    assert submit(service).name == NAME


def test_a_race_lost_to_another_thing_of_our_name_is_a_collision() -> None:
    with pytest.raises(BackendError, match="it is another"):
        submit(Scripted([None], [view("b" * 64)]))


@pytest.mark.parametrize("code", ["azureml.quota", "azureml.forbidden", "azureml.refused"])
def test_a_clear_refusal_is_final_at_once(code: str) -> None:
    service = Scripted([None], [refused(code)])
    with pytest.raises(BackendError) as caught:
        submit(service)
    assert (service.sent, caught.value.faults[0].code) == (1, code)


def test_a_refusal_after_doubt_does_not_hide_a_job_that_was_accepted() -> None:
    service = Scripted([None, None, view()], [DoubtError("time-out"), refused("azureml.quota")])
    assert submit(service).name == NAME


def test_when_nobody_answers_until_the_deadline_the_outcome_is_unknown_and_says_so() -> None:
    clock = Clock()
    service = Scripted([None, refused("azureml.network")], [DoubtError("time-out")])
    with pytest.raises(UnknownOutcomeError, match="may or may not") as caught:
        submit(service, clock)
    assert caught.value.exit_code is ExitCode.UNKNOWN_OUTCOME
    assert caught.value.faults[0].suggestion == f"launcher reconcile azureml:{NAME}"
    assert 300 <= clock.time <= 301


def test_a_look_that_is_refused_settles_nothing_once_a_job_may_have_been_accepted() -> None:
    with pytest.raises(UnknownOutcomeError):
        submit(Scripted([None, refused("azureml.refused")], [DoubtError("time-out")]))
    looked = Scripted([None, refused("azureml.forbidden"), view()], [DoubtError("time-out")])
    assert submit(looked).name == NAME


def test_a_conflict_with_a_job_that_does_not_show_yet_is_no_refusal() -> None:
    service = Scripted([None, None, None, view()], [refused("azureml.conflict")])
    assert submit(service).name == NAME
    with pytest.raises(UnknownOutcomeError):
        submit(Scripted([None], [refused("azureml.conflict")]))


def test_another_job_under_our_name_is_final_even_in_doubt() -> None:
    with pytest.raises(BackendError, match="it is another"):
        submit(Scripted([None, view("b" * 64)], [DoubtError("time-out")]))


def test_when_no_request_ever_left_nothing_is_unknown() -> None:
    with pytest.raises(BackendError) as caught:
        submit(Scripted([None], [refused("azureml.network")]))
    assert caught.value.exit_code is ExitCode.BACKEND


def test_pauses_grow_and_stay_within_their_bound() -> None:
    clock, waits = Clock(), list[float]()
    patience = Patience(now=lambda: clock.time, sleep=clock.sleep, backoff_seconds=1, longest_pause_seconds=8)
    for pause in patience.pauses(60):
        waits.append(pause)
        clock.sleep(pause)
    assert all(low * 0.75 <= wait <= low * 1.25 for wait, low in zip(waits, (1, 2, 4, 8, 8), strict=False))
    assert sum(waits) == pytest.approx(60, abs=0.1)
