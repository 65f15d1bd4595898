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
at, moments = int(sys.argv[3]), 0
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
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync, os.link = counted(os.fsync, True), counted(os.link, True)
Path.replace = counted(Path.replace, True)
http.client.HTTPConnection.endheaders = counted(http.client.HTTPConnection.endheaders, True)
http.client.HTTPConnection.getresponse = counted(http.client.HTTPConnection.getresponse, True)
submit_journaled("azureml", job)
print("moments", moments, flush=True)
"""


def child(root: Path, seed: int, at: int) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-W", "ignore", "-c", CHILD, str(root), str(seed), str(at))
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ, timeout=120, check=False)


def test_killed_at_any_moment_a_submission_is_settled_by_the_next_command(inside: Inside, tmp_path: Path) -> None:
    root = tmp_path / "code"
    root.mkdir()
    variants = Variants(root)
    assert child(root, 0, at=0).returncode == 0  # the code and the environment are registered from here on
    whole = child(root, 1000, at=0)
    assert whole.returncode == 0, whole.stderr[-2000:]
    moments = int(whole.stdout.split()[-1])
    assert moments > 15  # the row, the files of the run, and every request of the way

    # every moment around the row and the PUT, every other one of the long way between them
    for at in [*range(1, 8), *range(8, moments - 8, 4), *range(moments - 8, moments + 1)]:
        job = variants.job(at)
        killed = child(root, at, at)
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
