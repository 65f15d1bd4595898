"""What every backend promises. Another backend joins by a fixture that parametrizes ``place``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from launcher.backends import backend_for, backend_names, parse_handle
from launcher.errors import NoSuchRunError, UsageError
from tests.backends.conftest import wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from launcher.backends.local.backend import LocalBackend
    from launcher.job.spec import JobSpec

    ScriptJob = Callable[..., JobSpec]


@pytest.fixture(params=["local"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_run_goes_from_submission_to_completed(place: str, backend: LocalBackend, script_job: ScriptJob) -> None:
    submission = backend.submit(script_job("print('hello')"))

    assert parse_handle(submission.handle)[0] == place
    assert wait(backend, submission.handle).state == "Completed"
    assert sorted(backend.logs(submission.handle)) == ["[rank 0] hello", "[rank 1] hello"]


def test_cancelling_twice_is_harmless(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("import time; time.sleep(60)")).handle

    assert backend.cancel(handle) == backend.cancel(handle)
    assert backend.status(handle).state == "Canceled"


def test_cancelling_a_completed_run_leaves_it_completed(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("")).handle
    wait(backend, handle)

    assert backend.cancel(handle).state == "Completed"


def test_rendering_starts_nothing(place: str, script_job: ScriptJob) -> None:
    text = backend_for(place).render(script_job("print('hello')"))

    assert "script.py" in text
    with pytest.raises(NoSuchRunError):
        backend_for(place).status(f"{place}:script-0123456789abcdef-1")


@pytest.mark.parametrize("verb", ["status", "logs", "cancel"])
def test_an_unknown_run_is_an_error_that_names_the_handle(place: str, verb: str) -> None:
    with pytest.raises(NoSuchRunError, match=f"{place}:no-such-run") as caught:
        getattr(backend_for(place), verb)(f"{place}:no-such-run")

    assert int(caught.value.exit_code) == 6


@pytest.mark.parametrize("text", ["", "local", "local:", "local:../../etc", "local:a b", "slurm:7", "local:-x"])
def test_text_that_is_no_handle_is_no_run(text: str) -> None:
    with pytest.raises(NoSuchRunError, match="is not the handle of a run"):
        parse_handle(text)


def test_backends_are_found_by_their_folders() -> None:
    assert "local" in backend_names()
    with pytest.raises(UsageError, match="there is no backend 'slurm'"):
        backend_for("slurm")
