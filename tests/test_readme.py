"""README.md tells the truth: its commands run, its links and folders are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from launcher.cli.main import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FREE_VERBS = ("plan", "recipes", "explain")
"""Verbs that neither start nor need a run."""


def lines_of(verbs: tuple[str, ...]) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(tuple(f"launcher {verb}" for verb in verbs))]


@pytest.mark.parametrize("line", lines_of(FREE_VERBS))
def test_a_command_of_the_readme_runs(line: str) -> None:
    assert run(shlex.split(line)[1:]) == 0


def test_the_plan_that_the_readme_shows_is_todays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, shown = re.findall(r"```\n\$ (launcher plan .*?)\n(.*?)```", README, flags=re.DOTALL)[0]
    monkeypatch.setenv("COLUMNS", "100")

    assert run(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out.strip() == shown.strip()


def test_the_recipe_of_the_readme_plans(tmp_path: Path) -> None:
    (path, text) = re.findall(r"```yaml\n# my-recipes/(\S+)\n(.*?)```", README, flags=re.DOTALL)[0]
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    shown = re.findall(r"`(launcher plan [^`]*--recipes my-recipes[^`]*)`", README)[0]

    assert run(shlex.split(shown.replace("my-recipes", str(tmp_path)))[1:]) == 0


def test_the_folders_of_the_readme_are_there() -> None:
    named = re.findall(r"`((?:launcher|recipes|environments|tests)/[a-z_/]+)`", README)

    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_ci_finds_both_commands() -> None:
    for marker in ("first command", "test command"):
        block = README.split(f"<!-- {marker} -->")[1].split("<!-- end -->")[0]
        assert re.search(r"^python3 -m venv ", block, flags=re.MULTILINE)
