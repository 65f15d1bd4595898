from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from launcher.backends.local.backend import run_folder
from launcher.errors import NoSuchRunError, RunFailedError, UsageError
from launcher.runs.checkpoints import Checkpoint, Shelf, resolve_resume
from tests.backends.conftest import wait
from tests.runs.conftest import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.backends.local.backend import LocalBackend
    from launcher.job.spec import JobSpec

    ScriptJob = Callable[..., JobSpec]


def test_a_run_is_continued_from_its_checkpoints(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("", ranks=1)).handle
    wait(backend, handle)
    place = run_folder(handle).output / "checkpoints"
    write_checkpoint(place / "step-00000010-abcdef", step=10)

    assert resolve_resume(handle) == str(place)


def test_the_newest_checkpoint_is_the_newest_with_a_whole_manifest(
    backend: LocalBackend, script_job: ScriptJob
) -> None:
    handle = backend.submit(script_job("", ranks=1)).handle
    place = run_folder(handle).output / "checkpoints"
    shelf = Shelf(run_folder(handle))
    assert shelf.newest() is None

    write_checkpoint(place / "step-00000009-abcdef", step=9)
    write_checkpoint(place / "step-00000010-abcdef", step=10)
    (place / "step-00000011-abcdef").mkdir()  # killed while it was written

    assert shelf.newest() == Checkpoint(path=place / "step-00000010-abcdef", step=10)
    shutil.rmtree(place / "step-00000010-abcdef")
    assert shelf.newest() == Checkpoint(path=place / "step-00000009-abcdef", step=9)


def test_checkpoints_are_looked_for_where_the_recipe_put_them(
    backend: LocalBackend, script_job: ScriptJob, tmp_path: Path
) -> None:
    job = script_job("", ranks=1)
    job.document["recipe"]["checkpoint"] = {"directory": str(tmp_path / "elsewhere")}
    handle = backend.submit(job).handle
    wait(backend, handle)
    write_checkpoint(tmp_path / "elsewhere" / "step-00000003-abcdef", step=3)

    assert resolve_resume(handle) == str(tmp_path / "elsewhere")


def test_a_run_without_a_checkpoint_cannot_be_continued(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("", ranks=1)).handle
    wait(backend, handle)

    with pytest.raises(RunFailedError, match="left no checkpoint in"):
        resolve_resume(handle)


def test_a_run_that_still_runs_cannot_be_continued(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("import time; time.sleep(60)", ranks=1)).handle

    with pytest.raises(UsageError, match="two runs must not continue the same one"):
        resolve_resume(handle)


def test_an_unknown_run_cannot_be_continued() -> None:
    with pytest.raises(NoSuchRunError):
        resolve_resume("local:nothing")
