"""An emulator for the tests: one for the whole session, its faults and settings put back after each test."""

from __future__ import annotations

import gc
import json
import os
import urllib.request
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from launcher.emulator.azurite import HOW_TO_GET_IT, find_azurite
from launcher.emulator.emulator import Emulator, emulate
from launcher.emulator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = Settings(preparing_seconds=0.0, notice_seconds=10.0)


@pytest.fixture(scope="session")
def running_emulator() -> Iterator[Emulator]:
    """One emulator with a real Azurite; a test that needs it is skipped, with the reason, where there is none."""
    pytest.importorskip("cryptography", reason="the emulator extra is not installed")
    if find_azurite() is None:
        pytest.skip(f"Azurite is not installed: {HOW_TO_GET_IT}")
    with emulate(SETTINGS) as emulator:
        yield emulator


@dataclass(frozen=True)
class Inside:
    """The emulator as a test inside it sees it."""

    emulator: Emulator

    def ask(self, verb: str, **wish: Any) -> Any:
        """One wish to ``/emulator``."""
        request = urllib.request.Request(
            f"{self.emulator.address}/emulator/{verb}", data=json.dumps(wish).encode(), method="POST"
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return json.load(answer)

    def fault(self, kind: str, method: str = "*", path: str = "", **fields: Any) -> None:
        """Arm one fault."""
        self.ask("faults", faults=[{"kind": kind, "method": method, "path": path, **fields}])

    def settings(self, **changes: Any) -> None:
        """Change quota, capacity, role, ..."""
        self.ask("settings", **changes)

    def puts(self, name: str) -> int:
        """How often a job of this name was PUT."""
        return int(self.ask("ledger")["puts"].get(name, 0))

    def accepted(self, name: str | None = None) -> list[str]:
        """Names of accepted jobs, of one name if given."""
        return [entry["name"] for entry in self.ask("ledger", **({"name": name} if name else {}))["accepted"]]

    def requests(self) -> list[tuple[str, str, int]]:
        """(method, host and path, bytes) of every request to Azure since the last ``traffic/clear``."""
        seen = self.ask("traffic")["requests"]
        return [(one["method"], one["host"] + one["path"], one["bytes"]) for one in seen if one["host"]]


@pytest.fixture
def inside(running_emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Inside]:
    """This process's environment points into the emulator; jobs wait in the queue unless the test lets them run."""
    for name in [name for name in os.environ if name.startswith(("AZURE", "ARM_", "ACTIONS_", "MLFLOW"))]:
        monkeypatch.delenv(name)
    for name, value in running_emulator.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAUNCHER_HOME", str(tmp_path / "home"))
    emulator = Inside(running_emulator)
    emulator.settings(processes=0)
    yield emulator
    emulator.ask("end-all")
    emulator.ask("faults/clear")
    emulator.ask("token-lifetime", seconds=3600)
    running_emulator.workspace.settings = replace(SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK's clients cannot be closed
        gc.collect()
        gc.freeze()  # what is left (the SDK's modules) is not looked at again: 0.3 s a test
