"""Recipes are data: none of these runs anything, reads anything else, or lets anything of its folder in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.compose.composer import compose
from launcher.errors import RecipeError

if TYPE_CHECKING:
    from tests.compose.conftest import Team

# Callables that instantiated configs were turned into code execution with (hydra GHSA-2cp2-2r3c-7p7r and
# GHSA-37p2, CVE-2025-23304, CVE-2026-22584), and their like.
GADGETS = (Path(__file__).parent / "gadgets.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("callable_", GADGETS)
def test_no_callable_is_named_by_a_file(callable_: str, team: Team, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    folder = team(
        "recipe/evil", f"parallelism:\n  deepspeed:\n    x: {{_target_: {callable_}, _args_: [touch {canary}]}}\n"
    )

    with pytest.raises(RecipeError) as refused:
        compose(["evil"], recipe_dirs=[folder])

    assert [fault.what for fault in refused.value.faults] == [
        "_target_ would run code; recipes are data",
        "_args_ would run code; recipes are data",
    ]
    assert not canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "${oc.env:CANARY}",
        "${oc.env:CANARY,none}",
        "a ${oc.env:CANARY} b",
        "${oc.decode:${oc.env:CANARY}}",
        "${oc.create:{a: 1}}",
        "${hydra:runtime.cwd}",
        "${env:CANARY}",
        "${now:%Y}",
        "${python_version:}",
        "${oc.dict.values:tags}",
        r"\\${oc.env:CANARY}",
    ],
)
@pytest.mark.parametrize("place", ["file", "command line"])
def test_no_resolver_reads_the_environment(text: str, place: str, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "yellow-bird")
    folder = team(
        "recipe/evil", f"environment:\n  variables:\n    X: '{text}'\n" if place == "file" else "name: evil\n"
    )
    words = ["evil"] if place == "file" else ["evil", f"environment.variables.X={text}"]

    try:
        shown = repr(compose(words, recipe_dirs=[folder]).recipe)
    except RecipeError as refused:
        shown = repr(refused.faults)

    assert "yellow-bird" not in shown


@pytest.mark.parametrize(
    "entry",
    [
        "/hydra/job_logging: x",
        "override hydra/launcher: joblib",
        "override /hydra/sweeper: optuna",
        "../../outside",
        "/etc/passwd",
        "model: ../../../etc/passwd",
        "model: /etc/passwd",
        "model: 'pkg://os'",
        "model: ${oc.env:HOME}",
        "file:///etc/passwd",
    ],
)
def test_no_defaults_entry_leaves_the_folders(entry: str, team: Team) -> None:
    folder = team("recipe/evil", f"defaults:\n  - {entry}\n")

    with pytest.raises(RecipeError):
        compose(["evil"], recipe_dirs=[folder])


def test_no_plugin_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    plugins = tmp_path / "hydra_plugins"
    plugins.mkdir()
    (plugins / "__init__.py").write_text("")
    (plugins / "evil.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w').close()\n")
    program = "from launcher.compose.composer import compose; print(compose(['gpt/tiny']).recipe.name)"

    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert ended.stdout == "gpt/tiny\n"
    assert not (tmp_path / "canary").exists()


def test_a_primary_file_of_a_team_cannot_widen_the_search(team: Team, tmp_path: Path) -> None:
    folder = team("config", f"hydra: {{searchpath: ['file://{tmp_path}']}}\n")

    with pytest.raises(RecipeError, match="hydra's own settings are no part of a recipe"):
        compose(["gpt/tiny"], recipe_dirs=[folder])
