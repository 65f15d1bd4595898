"""Eight processes submit the same thing at the same moment: one job, and everybody has its handle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.azureml.jobs import Variants

if TYPE_CHECKING:
    from tests.emulated import Inside

pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
pytestmark = pytest.mark.usefixtures("quiet_sdk")

ROOT = Path(__file__).parents[2]
RACERS = 8
RACE = """
import os, sys
from pathlib import Path
import azure.ai.ml
from launcher.runs.reconcile import submit_journaled
from tests.azureml.jobs import Variants
variants = Variants(Path(sys.argv[1]))
starts = []
for home in sys.argv[2:]:
    read, write = os.pipe()
    if os.fork() == 0:
        os.environ["LAUNCHER_HOME"] = home
        for line in os.fdopen(read):
            os.write(1, (submit_journaled("azureml", variants.job(int(line))).handle + chr(10)).encode())
        os._exit(0)
    starts.append(write)
for line in sys.stdin:
    for start in starts:
        os.write(start, line.encode())
"""
"""Eight processes, forked from one that has everything imported, wait for the number of the job to submit."""


def race(inside: Inside, tmp_path: Path, rounds: int) -> None:
    """``rounds`` races; every racer has a home of its own, as eight people have."""
    root = tmp_path / "code"
    root.mkdir()
    variants, homes = Variants(root), [str(tmp_path / f"home{n}") for n in range(RACERS)]
    racers = subprocess.Popen(
        (sys.executable, "-W", "ignore", "-c", RACE, str(root), *homes),
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True,
    )  # fmt: skip
    assert racers.stdin is not None
    assert racers.stdout is not None
    try:
        for number in range(rounds):
            inside.settings(repeated_put=("accepted", "immutable")[number % 2])
            racers.stdin.write(f"{number}\n")
            racers.stdin.flush()
            job = variants.job(number)
            said = [racers.stdout.readline().strip() for _ in range(RACERS)]
            assert said == [f"azureml:{job.name}"] * RACERS
            assert inside.accepted(job.name) == [job.name]
    finally:
        os.killpg(racers.pid, signal.SIGKILL)
        racers.communicate()


def test_eight_processes_at_once_make_one_job_and_all_have_it(inside: Inside, tmp_path: Path) -> None:
    race(inside, tmp_path, rounds=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_processes_at_once_make_one_job_a_hundred_times_over(inside: Inside, tmp_path: Path) -> None:
    race(inside, tmp_path, rounds=100)
