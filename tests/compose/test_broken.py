"""Every broken recipe is refused with words: each file in ``broken/`` stands beside the text of its faults."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from launcher.compose.composer import compose
from launcher.errors import Fault, RecipeError

BROKEN = Path(__file__).parent / "broken"


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team's folder named as ours, so that places read as a user reads them."""
    folder = tmp_path / "team" / "recipe"
    folder.mkdir(parents=True)
    return folder.parent


@pytest.mark.parametrize("name", sorted(path.stem for path in BROKEN.glob("*.yaml")))
def test_a_broken_recipe_is_refused_in_the_words_beside_it(name: str, team: Path) -> None:
    shutil.copy(BROKEN / f"{name}.yaml", team / "recipe")
    started = time.process_time()

    with pytest.raises(RecipeError) as refused:
        compose([name], recipe_dirs=[team])

    assert time.process_time() - started < 1.0  # the bombs too; our own time, whatever else the machine does
    assert "\n".join(map(_told, refused.value.faults)) == (BROKEN / f"{name}.txt").read_text(encoding="utf-8").strip()


def _told(fault: Fault) -> str:
    parts = [
        ("", fault.what),
        ("  where   ", fault.where),
        ("  allowed ", fault.allowed),
        ("  try     ", fault.suggestion),
    ]
    return "\n".join(f"{label}{text}" for label, text in parts if text is not None)


def test_every_expected_text_has_its_file() -> None:
    assert {path.stem for path in BROKEN.glob("*.txt")} == {path.stem for path in BROKEN.glob("*.yaml")}
