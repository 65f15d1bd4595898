"""Runs of a team's own script: quick to start, and as wicked as a test needs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest

from launcher.backends.local.backend import LocalBackend, run_folder
from launcher.backends.local.ranks import processes_of
from launcher.backends.local.state import read_state
from launcher.job.spec import JobSpec, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from launcher.backends.backend import RunStatus


@pytest.fixture(autouse=True)
def launcher_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own, in which nothing is left running."""
    home = tmp_path / "home"
    monkeypatch.setenv("LAUNCHER_HOME", str(home))
    yield home
    for launch in (home / "runs").glob("*/launch.json"):
        LocalBackend().cancel(f"local:{launch.parent.name}")


@pytest.fixture
def backend() -> LocalBackend:
    """The local backend with little patience, so that stubborn ranks do not hold up the tests."""
    return LocalBackend(grace_seconds=6.0)


@pytest.fixture
def script_job(tmp_path: Path) -> Callable[..., JobSpec]:
    """A job whose ranks run the given Python text."""

    def build(text: str, *arguments: str, nodes: int = 1, ranks: int = 2, **fields: Any) -> JobSpec:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "script.py").write_text(textwrap.dedent(text))
        document = {"name": "script-0123456789abcdef-1", "attempt": 1, "recipe": {}}
        spec: dict[str, Any] = {
            "name": document["name"],
            "display_name": "script",
            "experiment": "tests",
            "attempt": 1,
            "command": ("python", "script.py", *arguments),
            "nodes": nodes,
            "processes_per_node": ranks,
            "instance_type": "local_cpu",
            "device": "cpu",
            "environment_variables": {},
            "snapshot": Snapshot(root=str(code), commit=None, is_dirty=False),
            "document": document,
            "plan": {},
        }
        return JobSpec(**(spec | fields))

    return build


def wait(backend: LocalBackend, handle: str, *, state: str | None = None, seconds: float = 20) -> RunStatus:
    """The status once the run has ended, or is in ``state``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = backend.status(handle)
        if status.state == state or status.is_terminal:
            return status
        time.sleep(0.02)
    raise AssertionError(f"{handle} is still {status.state}: {list(backend.logs(handle))}")


def wait_for(handle: str, text: str, *, backend: LocalBackend, seconds: float = 20) -> None:
    """Return once ``text`` is in some rank's log."""
    deadline = time.monotonic() + seconds
    while not any(text in line for line in backend.logs(handle)):
        assert time.monotonic() < deadline, list(backend.logs(handle))
        time.sleep(0.02)


def rank_pid(handle: str, rank: int) -> int:
    """The process of one rank."""
    deadline = time.monotonic() + 30
    while str(rank) not in (ranks := read_state(run_folder(handle).state).ranks):
        assert time.monotonic() < deadline, f"the supervisor has not noted rank {rank}"
        time.sleep(0.05)
    return ranks[str(rank)]


def left_running(handle: str) -> tuple[int, ...]:
    """Processes of the run that still live."""
    assert sys.platform == "linux"
    return processes_of(run_folder(handle))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place))
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(("umount", "--lazy", str(place)), check=True)
