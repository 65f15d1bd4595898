"""Random faults: 300 here, 10,000 in the long suite (``pytest -m slow -k injections``)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.emulator.azurite import HOW_TO_GET_IT, find_azurite

ROOT = Path(__file__).parents[2]
WORKERS = 4  # they mostly wait


def run(count: int, *, seed: int, switch: str = "") -> subprocess.Popen[str]:
    """A process that makes ``count`` injections, in an emulator of its own."""
    command = (sys.executable, "-W", "ignore", "-m", "tests.azureml.injections", str(count), str(seed), switch)
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    )


def totals(workers: list[subprocess.Popen[str]]) -> dict[str, int]:
    """What all injections together came to."""
    outputs = [worker.communicate()[0] for worker in workers]
    for worker, output in zip(workers, outputs, strict=True):
        assert worker.returncode == 0, output[-3000:]
    counts: dict[str, int] = {}
    for output in outputs:
        last = [line for line in output.splitlines() if "injections (seed" in line][-1]
        for word, number in re.findall(r"'(\w+)': (\d+)", last):
            counts[word] = counts.get(word, 0) + int(number)
    return counts


@pytest.fixture(autouse=True)
def _needs() -> None:
    pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
    if find_azurite() is None:
        pytest.skip(f"Azurite is not installed: {HOW_TO_GET_IT}")


@pytest.mark.timeout(900)
def test_three_hundred_random_faults_make_no_duplicate_and_lose_no_job() -> None:
    counts = totals([run(75, seed=1000 + worker) for worker in range(WORKERS)])
    assert sum(counts.values()) == 300
    assert counts["submitted"] > 150  # most faults are survived, so most of what is judged is a job


def test_with_the_journal_switched_off_accepted_jobs_are_lost_and_the_suite_says_so() -> None:
    """A check that cannot fail is none."""
    worker = run(20, seed=7, switch="no-journal")
    output = worker.communicate()[0]
    assert worker.returncode != 0
    assert "an accepted job was lost" in output


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_ten_thousand_random_faults_make_no_duplicate_and_lose_no_job() -> None:
    counts = totals([run(1250, seed=worker) for worker in range(2 * WORKERS)])
    assert sum(counts.values()) == 10_000
