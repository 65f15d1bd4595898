"""Eight processes submit the same thing at the same moment: one job, and everybody has its handle."""

from __future__ import annotations

import os
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
RACER = """
import os, sys
from pathlib import Path
from launcher.runs.reconcile import submit_journaled
from tests.azureml.jobs import Variants
import azure.ai.ml
os.environ["LAUNCHER_HOME"] = sys.argv[2]
variants = Variants(Path(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    print(submit_journaled("azureml", variants.job(int(line))).handle, flush=True)
"""


def race(inside: Inside, tmp_path: Path, rounds: int) -> None:
    """``rounds`` races; every racer has a home of its own, as eight people have."""
    root = tmp_path / "code"
    root.mkdir()
    variants = Variants(root)
    racers = [
        subprocess.Popen(
            (sys.executable, "-W", "ignore", "-c", RACER, str(root), str(tmp_path / f"home{n}")),
            cwd=ROOT, env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )
        for n in range(RACERS)
    ]  # fmt: skip
    try:
        assert [said(racer) for racer in racers] == ["ready"] * RACERS
        for number in range(rounds):
            inside.settings(repeated_put=("accepted", "immutable")[number % 2])
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{number}\n")
                racer.stdin.flush()
            job = variants.job(number)
            assert [said(racer) for racer in racers] == [f"azureml:{job.name}"] * RACERS
            assert inside.accepted(job.name) == [job.name]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def said(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    lines = (line.strip() for line in racer.stdout)
    return next(line for line in lines if line.startswith(("ready", "azureml:")))


def test_eight_processes_at_once_make_one_job_and_all_have_it(inside: Inside, tmp_path: Path) -> None:
    race(inside, tmp_path, rounds=5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_processes_at_once_make_one_job_a_hundred_times_over(inside: Inside, tmp_path: Path) -> None:
    race(inside, tmp_path, rounds=100)
