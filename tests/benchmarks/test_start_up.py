"""How long a person waits for the first answer, as a ratio to what nobody can do without.

``pytest -m benchmark -s`` prints the ratios. Both sides run in turn, many times, in one process tree; the smallest
wall time of each is compared, because everything else that runs on the machine only ever adds to it. Both keep compiled
bytecode, as Python does unless told otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[2]
ROUNDS = 15

BARE_COMPOSE = """
import sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
with initialize_config_dir(sys.argv[1], version_base="1.3"):
    OmegaConf.to_container(compose("config", overrides=["recipe=gpt/13b"]), resolve=True)
"""


def seconds(command: list[str], bytecode: Path) -> float:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env={**kept, "PYTHONPYCACHEPREFIX": str(bytecode)}
    )
    return time.perf_counter() - start


def ratio(ours: list[str], theirs: list[str], bytecode: Path) -> float:
    """Best of ours over best of theirs, the two measured in turn."""
    times = [(seconds(ours, bytecode), seconds(theirs, bytecode)) for _ in range(ROUNDS)]
    best_ours, best_theirs = min(mine for mine, _ in times), min(other for _, other in times)
    print(
        f"\n{' '.join(ours[1:])}: {1e3 * best_ours:.0f} ms, {best_ours / best_theirs:.2f} x {1e3 * best_theirs:.0f} ms"
    )
    return best_ours / best_theirs


def test_help_takes_at_most_twice_an_import_of_click(tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "launcher", "--help"]

    assert ratio(ours, [sys.executable, "-c", "import click"], tmp_path) <= 2


def test_plan_takes_at_most_1_6_times_a_bare_hydra_compose(tmp_path: Path) -> None:
    ours = [sys.executable, "-m", "launcher", "plan", "gpt/13b"]

    assert ratio(ours, [sys.executable, "-c", BARE_COMPOSE, str(ROOT / "recipes")], tmp_path) <= 1.6
