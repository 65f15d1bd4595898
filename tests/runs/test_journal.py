from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from launcher.errors import BackendError, NoSuchRunError
from launcher.runs import journal
from launcher.runs.journal import Row
from launcher.runs.submission import submit
from tests.backends.conftest import wait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from launcher.backends.local.backend import LocalBackend
    from launcher.job.spec import JobSpec

    ScriptJob = Callable[..., JobSpec]


def row(name: str, **changes: Any) -> Row:
    return Row(**({"backend": "local", "name": name, "state": "PLANNED"} | changes))


def test_a_recorded_row_is_found_again_as_it_was() -> None:
    planned = row("gpt-tiny-1", intent="0123", details={"workspace": "w"}, parent="local:gpt-tiny-0")

    assert journal.record(planned)
    assert journal.find("local:gpt-tiny-1") == planned


def test_a_handle_is_recorded_once() -> None:
    journal.record(row("a-1", recipe="first"))

    assert not journal.record(row("a-1", recipe="second"))
    assert journal.find("a-1").recipe == "first"


def test_an_update_changes_the_state() -> None:
    planned = row("a-1")
    journal.record(planned)

    journal.update(planned, state="UNKNOWN", url="https://example.com")

    assert (journal.find("a-1").state, journal.find("a-1").url) == ("UNKNOWN", "https://example.com")


def test_rows_come_newest_first() -> None:
    for day in (2, 3, 1):
        journal.record(row(f"run-{day}", created_at=f"2026-01-0{day}T00:00:00.000000+00:00"))

    assert [found.name for found in journal.rows()] == ["run-3", "run-2", "run-1"]
    assert journal.find("latest").name == "run-3"


def test_a_unique_beginning_is_enough() -> None:
    journal.record(row("gpt-tiny-aaaa-1"))
    journal.record(row("gpt-tiny-bbbb-1"))

    assert journal.find("gpt-tiny-b").name == "gpt-tiny-bbbb-1"
    assert journal.resolve("local:gpt-tiny-a") == "local:gpt-tiny-aaaa-1"
    with pytest.raises(NoSuchRunError, match="'gpt' may be 2 runs"):
        journal.find("gpt")


def test_a_whole_name_wins_over_a_longer_one() -> None:
    journal.record(row("run-1"))
    journal.record(row("run-10"))

    assert journal.find("run-1").name == "run-1"


def test_a_handle_of_somebody_elses_run_is_taken_as_it_is() -> None:
    journal.record(row("mine-1"))

    assert journal.resolve("local:theirs-1") == "local:theirs-1"


@pytest.mark.parametrize("text", ["latest", "", "nothing", "slurm:7"])
def test_what_is_not_there_is_no_run(text: str) -> None:
    with pytest.raises(NoSuchRunError, match="no run"):
        journal.resolve(text)


def test_a_torn_row_is_moved_aside_wherever_it_is_torn(launcher_home: Path) -> None:
    journal.record(row("whole-1"))
    journal.record(row("torn-1"))
    path = launcher_home / "journal" / "local-torn-1.json"
    content = path.read_bytes()

    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert [found.name for found in journal.rows()] == ["whole-1"]

    aside = list((launcher_home / "journal" / "corrupt").iterdir())
    assert len(aside) == len(content)


@pytest.mark.parametrize("content", ["[]", "null", "7", '{"schema_version": "x"}', '{"schema_version": 1}', "\0" * 50])
def test_a_row_that_is_none_is_moved_aside(launcher_home: Path, content: str) -> None:
    journal.record(row("whole-1"))
    path = launcher_home / "journal" / "local-other-1.json"
    path.write_text(content)

    assert [found.name for found in journal.rows()] == ["whole-1"]
    assert not path.exists()


def test_a_row_of_a_newer_launcher_is_left_alone(launcher_home: Path) -> None:
    journal.record(row("new-1"))
    path = launcher_home / "journal" / "local-new-1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))

    assert journal.rows() == ()
    assert path.exists()


def test_sixteen_processes_at_once_lose_no_row(launcher_home: Path) -> None:
    code = """
import sys
from launcher.runs import journal
names = [f"run-{sys.argv[1]}-{number}" for number in range(25)] + ["everybodys-1"]
made = [journal.record(journal.Row(backend="local", name=name, state="PLANNED")) for name in names]
print(sum(made[:-1]), int(made[-1]))
"""
    writers = [
        subprocess.Popen((sys.executable, "-c", code, str(number)), stdout=subprocess.PIPE, text=True)
        for number in range(16)
    ]
    made = [writer.communicate()[0].split() for writer in writers]

    assert [own for own, _ in made] == ["25"] * 16
    assert sum(int(shared) for _, shared in made) == 1
    assert len(journal.rows()) == 16 * 25 + 1


def test_a_journal_that_cannot_be_written_refuses(launcher_home: Path) -> None:
    launcher_home.mkdir()
    (launcher_home / "journal").write_text("a file where the folder should be")

    with pytest.raises(BackendError, match="the journal cannot be written"):
        journal.record(row("a-1"))


def test_holding_a_handle_keeps_others_out(launcher_home: Path) -> None:
    code = "from launcher.runs import journal\nwith journal.held('local:a-1'): print('in')"

    with journal.held("local:a-1"):
        other = subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(timeout=0.6)

    assert other.communicate(timeout=10)[0] == b"in\n"


def test_a_submission_is_journaled_with_the_attempt_that_was_free(script_job: ScriptJob) -> None:
    job = script_job("", ranks=1, tags={"recipe": "gpt/tiny", "plan_digest": "88d0"})
    submit("local", job)

    second = submit("local", job, parent="local:script-0123456789abcdef-1")

    found = journal.find("latest")
    assert (found.handle, found.attempt, found.state) == (second.handle, 2, "SUBMITTED")
    assert (found.intent, found.recipe, found.plan_digest) == ("0123456789abcdef", "gpt/tiny", "88d0")
    assert (found.url, found.parent) == (second.url, "local:script-0123456789abcdef-1")


def test_a_run_that_started_is_known_even_if_the_journal_cannot_be_written(
    script_job: ScriptJob, launcher_home: Path
) -> None:
    launcher_home.mkdir()
    (launcher_home / "journal").write_text("a file where the folder should be")

    handle = submit("local", script_job("", ranks=1)).handle

    assert journal.find("latest").handle == handle


def test_a_lost_journal_is_made_again_from_the_run_folders(backend: LocalBackend, script_job: ScriptJob) -> None:
    handle = backend.submit(script_job("", ranks=1)).handle
    wait(backend, handle)

    assert [(found.handle, found.state) for found in journal.rows()] == [(handle, "SUBMITTED")]
