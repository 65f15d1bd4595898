"""A submission killed at every moment that leaves a trace: whatever is left, the next command settles it.

The child counts what is durable (fsync, link, rename) and every request it sends, and dies of SIGKILL at the Nth. The
counting is put around the standard library from outside: the launcher itself knows nothing of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.runs import journal
from launcher.runs.reconcile import reconcile, submit_journaled
from tests.azureml.jobs import Variants

if TYPE_CHECKING:
    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")

ROOT = Path(__file__).parents[2]
CHILD = """
import http.client, os, signal, sys
from pathlib import Path
from launcher.runs.reconcile import submit_journaled
from tests.azureml.jobs import Variants
job = Variants(Path(sys.argv[1])).job(int(sys.argv[2]))
at, number, moments = int(sys.argv[3]), int(sys.argv[4]), 0
def counted(act, after):
    def moment(*arguments, **named):
        global moments
        if not after:
            step()
        result = act(*arguments, **named)
        if after:
            step()
        return result
    return moment
def step():
    global moments
    moments += 1
    if moments == at:
        os.kill(os.getpid(), number)
os.fsync, os.link = counted(os.fsync, True), counted(os.link, True)
Path.replace = counted(Path.replace, True)
http.client.HTTPConnection.endheaders = counted(http.client.HTTPConnection.endheaders, True)
http.client.HTTPConnection.getresponse = counted(http.client.HTTPConnection.getresponse, True)
submit_journaled("azureml", job)
print("moments", moments, flush=True)
"""


def child(root: Path, seed: int, at: int, number: int = signal.SIGKILL) -> subprocess.CompletedProcess[str]:
    """A process that submits job ``seed`` and gets the signal ``number`` at moment ``at``."""
    command = (sys.executable, "-W", "ignore", "-c", CHILD, *map(str, (root, seed, at, int(number))))
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ, timeout=120, check=False)


def settle(inside: Inside, root: Path, moments: list[int], variants: Variants, base: int) -> None:
    """Kill a submission at each of ``moments``, and look at what is left and what the next command makes of it."""
    for at in moments:
        job = variants.job(base + at)
        killed = child(root, base + at, at)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
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


def prepared(tmp_path: Path, base: int) -> tuple[Path, Variants, int]:
    """A folder of code, jobs of it, and how many moments a submission has once code and environment are registered.

    ``base``: the first seed that is this test's own; other tests submit the same code to the same workspace.
    """
    root = tmp_path / "code"
    root.mkdir()
    assert child(root, base, at=0).returncode == 0
    whole = child(root, base + 1000, at=0)
    assert whole.returncode == 0, whole.stderr[-2000:]
    moments = int(whole.stdout.split()[-1])
    assert moments > 15  # the row, and every request of the way
    return root, Variants(root), moments


def test_killed_around_the_row_or_the_put_a_submission_is_settled_by_the_next_command(
    inside: Inside, tmp_path: Path
) -> None:
    root, variants, moments = prepared(tmp_path, 10_000)
    settle(inside, root, [1, 2, 3, *range(moments - 4, moments + 1)], variants, 10_000)


def test_ctrl_c_leaves_a_row_that_says_it_is_open_and_the_command_that_settles_it(
    inside: Inside, tmp_path: Path
) -> None:
    root, variants, moments = prepared(tmp_path, 30_000)
    for at in (moments - 3, moments - 2):
        job = variants.job(30_000 + at)
        interrupted = child(root, 30_000 + at, at, signal.SIGINT)
        assert "UnknownOutcomeError: interrupted while azureml:" in interrupted.stderr
        assert journal.find(f"azureml:{job.name}").state == "UNKNOWN"
        reconcile(f"azureml:{job.name}")
        accepted = inside.accepted(job.name) == [job.name]
        assert journal.find(f"azureml:{job.name}").state == ("SUBMITTED" if accepted else "UNKNOWN")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_any_moment_a_submission_is_settled_by_the_next_command(inside: Inside, tmp_path: Path) -> None:
    root, variants, moments = prepared(tmp_path, 20_000)
    settle(inside, root, list(range(1, moments + 1)), variants, 20_000)
