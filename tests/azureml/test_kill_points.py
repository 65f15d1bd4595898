"""A submission killed at every moment that leaves a trace: whatever is left, the next command settles it.

The child counts what is durable (fsync, link, rename) and every request it sends, and dies of SIGKILL at the Nth. The
counting is put around the standard library from outside: the launcher itself knows nothing of it. Children are forked
from a process that has everything imported, so that one costs a fork and not three seconds of imports.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.runs import journal
from launcher.runs.reconcile import reconcile, submit_journaled
from tests.azureml.jobs import Variants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")

ROOT = Path(__file__).parents[2]
PARENT = """
import http.client, json, os, signal, sys
from pathlib import Path
import azure.ai.ml
from launcher.runs.reconcile import submit_journaled
from tests.azureml.jobs import Variants
variants = Variants(Path(sys.argv[1]))
moments = 0
def child(seed, at, number):
    job = variants.job(seed)
    def step():
        global moments
        moments += 1
        if moments == at:
            os.kill(os.getpid(), number)
    def counted(act, after):
        def moment(*arguments, **named):
            if not after:
                step()
            result = act(*arguments, **named)
            if after:
                step()
            return result
        return moment
    os.fsync, os.link = counted(os.fsync, True), counted(os.link, True)
    Path.replace = counted(Path.replace, True)
    http.client.HTTPConnection.endheaders = counted(http.client.HTTPConnection.endheaders, True)
    http.client.HTTPConnection.getresponse = counted(http.client.HTTPConnection.getresponse, True)
    submit_journaled("azureml", job)
for line in sys.stdin:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = ""
        try:
            child(*json.loads(line))
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, json.dumps([moments, said]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        left = answer.read() or "[0, \\"\\"]"
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), *json.loads(left)]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int
    """Minus the signal that killed it."""
    moments: int
    said: str
    """The exception it raised."""


class Children:
    """Processes that submit."""

    def __init__(self, root: Path) -> None:
        command = (sys.executable, "-W", "ignore", "-c", PARENT, str(root))
        self._parent = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def child(self, seed: int, at: int = 0, number: int = signal.SIGKILL) -> Ended:
        """One that submits job ``seed`` and gets the signal ``number`` at moment ``at``."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps([seed, at, int(number)]) + "\n")
        self._parent.stdin.flush()
        return Ended(*json.loads(self._parent.stdout.readline()))

    def close(self) -> None:
        """No more."""
        self._parent.communicate()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    root.mkdir()
    return root


@pytest.fixture
def children(inside: Inside, code: Path) -> Iterator[Children]:
    started = Children(code)
    yield started
    started.close()


def settle(inside: Inside, children: Children, moments: list[int], variants: Variants, base: int) -> None:
    """Kill a submission at each of ``moments``, and look at what is left and what the next command makes of it."""
    for at in moments:
        job = variants.job(base + at)
        assert children.child(base + at, at).code == -signal.SIGKILL
        rows = {row.name: row for row in journal.rows()}
        was_accepted = inside.accepted(job.name) == [job.name]
        assert not was_accepted or job.name in rows, f"moment {at}: an accepted job nobody knows of"
        if job.name in rows:
            reconcile(rows[job.name].handle)
            state = journal.find(rows[job.name].handle).state
            assert state == ("SUBMITTED" if was_accepted else "PLANNED"), f"moment {at}: {state}"
        submit_journaled("azureml", job)
        assert inside.accepted(job.name) == [job.name], f"moment {at}: a duplicate"
        assert journal.find(f"azureml:{job.name}").state == "SUBMITTED"


def moments_of(children: Children, base: int) -> int:
    """How many moments a submission has once code and environment are registered.

    ``base``: the first seed that is this test's own; other tests submit the same code to the same workspace.
    """
    assert children.child(base).said == ""
    whole = children.child(base + 1000)
    assert (whole.code, whole.said) == (0, "")
    assert whole.moments > 15  # the row, and every request of the way
    return whole.moments


def test_killed_around_the_row_or_the_put_a_submission_is_settled_by_the_next_command(
    inside: Inside, children: Children, code: Path
) -> None:
    moments = moments_of(children, 10_000)
    settle(inside, children, [1, 2, 3, *range(moments - 4, moments + 1)], Variants(code), 10_000)


def test_ctrl_c_leaves_a_row_that_says_it_is_open_and_the_command_that_settles_it(
    inside: Inside, children: Children, code: Path
) -> None:
    variants, moments = Variants(code), moments_of(children, 30_000)
    for at in (moments - 3, moments - 2):
        job = variants.job(30_000 + at)
        interrupted = children.child(30_000 + at, at, signal.SIGINT)
        assert interrupted.said.startswith("UnknownOutcomeError: interrupted while azureml:")
        assert journal.find(f"azureml:{job.name}").state == "UNKNOWN"
        reconcile(f"azureml:{job.name}")
        accepted = inside.accepted(job.name) == [job.name]
        assert journal.find(f"azureml:{job.name}").state == ("SUBMITTED" if accepted else "UNKNOWN")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_any_moment_a_submission_is_settled_by_the_next_command(
    inside: Inside, children: Children, code: Path
) -> None:
    moments = moments_of(children, 20_000)
    settle(inside, children, list(range(1, moments + 1)), Variants(code), 20_000)
