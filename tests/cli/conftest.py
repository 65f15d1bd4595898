"""The real command, run in this process: its exit code, its answer (stdout) and its talk (stderr)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from launcher.backends.local.backend import LocalBackend
from launcher.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parents[1] / "golden" / "cli"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the shell sees."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)


class Cli(Protocol):
    """``launcher`` with some arguments."""

    def __call__(self, *arguments: str | Path) -> Outcome: ...


@pytest.fixture(autouse=True)
def launcher_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own, in which nothing is left running."""
    home = tmp_path / "home"
    monkeypatch.setenv("LAUNCHER_HOME", str(home))
    yield home
    for launch in (home / "runs").glob("*/launch.json"):
        LocalBackend(grace_seconds=1).cancel(f"local:{launch.parent.name}")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process."""

    def call(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        streams = capsys.readouterr()
        return Outcome(code=code, out=streams.out, err=streams.err)

    return call


def assert_golden(text: str, name: str) -> None:
    """``text`` is what ``tests/golden/cli/NAME`` holds; ``UPDATE_GOLDEN=1`` writes it there to be reviewed."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
