"""What tests of the trainer inside this process share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.training.alone import joined_alone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder, in a process group of one in this process."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("LAUNCHER_HOME", str(tmp_path_factory.getbasetemp() / "home"))
    with joined_alone():
        yield tmp_path
