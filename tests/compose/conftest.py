"""A team's own folder of recipes, written by the test."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path


class Team(Protocol):
    """Writes one file of the team's folder and returns the folder."""

    def __call__(self, name: str, text: str) -> Path: ...


@pytest.fixture
def team(tmp_path: Path) -> Team:
    root = tmp_path / "team"

    def write(name: str, text: str) -> Path:
        path = root / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip(), encoding="utf-8")
        return root

    return write
