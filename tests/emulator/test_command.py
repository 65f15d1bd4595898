"""``launcher emulator -- COMMAND``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.emulator.azurite import HOW_TO_GET_IT, find_azurite

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


def emulator(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    command = (sys.executable, "-m", "launcher", "emulator", *words)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def _azurite() -> None:
    pytest.importorskip("cryptography", reason="the emulator extra is not installed")
    if find_azurite() is None:
        pytest.skip(f"Azurite is not installed: {HOW_TO_GET_IT}")


@pytest.mark.usefixtures("_azurite")
def test_the_exit_code_is_the_commands_and_so_is_the_output() -> None:
    done = emulator("--", sys.executable, "-c", "print('inside'); raise SystemExit(7)")
    assert (done.returncode, done.stdout) == (7, "inside\n")


@pytest.mark.usefixtures("_azurite")
def test_nobodys_own_credentials_go_in() -> None:
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    secrets = {"AZURE_CLIENT_SECRET": "mine", "ARM_ACCESS_KEY": "mine", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "mine"}
    inside = json.loads(emulator("--", sys.executable, "-c", show, **secrets).stdout)
    assert "mine" not in inside.values()
    assert inside["HTTPS_PROXY"] == inside["LAUNCHER_EMULATOR"]
    assert inside["AZUREML_ARM_WORKSPACE_NAME"] == "emulated-workspace"


@pytest.mark.usefixtures("_azurite")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not tell children of a parent's death")
def test_a_killed_emulator_leaves_no_azurite_behind(tmp_path: Path) -> None:
    words = ("emulator", "--folder", str(tmp_path), "--", sys.executable, "-c", "print('inside', flush=True); input()")
    killed = subprocess.Popen(
        (sys.executable, "-m", "launcher", *words),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert killed.stdout is not None
    assert killed.stdout.readline() == "inside\n"
    assert _processes_in(tmp_path)
    killed.kill()
    killed.communicate()
    _until(lambda: not _processes_in(tmp_path))


def _processes_in(folder: Path) -> list[str]:
    """Azurite's processes that keep their blobs below ``folder``."""
    shown = subprocess.run(("ps", "-wweo", "args"), capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in shown if "azurite" in line and f"--location {folder}" in line]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.usefixtures("_azurite")
def test_a_command_that_is_not_there_is_127_as_in_a_shell() -> None:
    assert emulator("--", "no-such-command").returncode == 127


def test_without_azurite_it_says_how_to_get_it(tmp_path: Path) -> None:
    done = emulator("--", "true", LAUNCHER_AZURITE=str(tmp_path / "nowhere"))
    assert done.returncode == 4
    assert "npm install azurite" in done.stderr


def test_without_a_command_it_asks_for_one() -> None:
    done = emulator()
    assert done.returncode == 2
    assert "which command?" in done.stderr
