"""What each command loads, and which way imports point: the walls of the project, held by the interpreter itself."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RECORD = """
import json, sys
before = set(sys.modules)
{act}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
foreign = loaded - set(sys.stdlib_module_names) - {{"launcher"}}
print(json.dumps(sorted(foreign)), file=sys.stderr)
"""


def foreign_packages(act: str, tmp_path: Path) -> set[str]:
    """Packages beyond the standard library and ours that a fresh interpreter loads while it runs ``act``."""
    done = subprocess.run(
        [sys.executable, "-c", RECORD.format(act=act)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"LAUNCHER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def run(*arguments: str) -> str:
    return f"from launcher.cli.main import run; assert run({list(arguments)!r}) == 0"


def modules_of(*packages: str) -> list[str]:
    """Every module under ``packages``, by dotted name."""
    found = []
    for name in packages:
        package = import_module(name)
        walk = pkgutil.walk_packages(package.__path__, f"{name}.")
        found += [name, *(module.name for module in walk)]
    return found


def test_help_loads_click_alone(tmp_path: Path) -> None:
    assert foreign_packages(run("--help"), tmp_path) == {"click"}


def test_help_loads_no_verb_but_the_one_that_was_asked_for(tmp_path: Path) -> None:
    act = "\n".join(
        [
            run("plan", "--help"),
            "from launcher.cli.main import VERBS",
            "assert {f'launcher.cli.{verb}' for verb in VERBS} & set(sys.modules) == {'launcher.cli.plan'}",
        ]
    )

    assert foreign_packages(act, tmp_path) == {"click"}


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_plan_loads_click_and_hydra_alone(options: list[str], tmp_path: Path) -> None:
    loaded = foreign_packages(run("plan", "gpt/13b", *options), tmp_path)

    of_hydra = {"hydra", "omegaconf", "yaml", "_yaml", "antlr4", "attr", "packaging"}
    of_yaml_in_c = {name for name in loaded if "cython" in name}
    assert loaded - of_yaml_in_c <= {"click"} | of_hydra


def test_explain_loads_click_alone(tmp_path: Path) -> None:
    assert foreign_packages(run("explain", "parallelism.zero_stage"), tmp_path) == {"click"}


def test_the_core_is_the_standard_library(tmp_path: Path) -> None:
    core = modules_of("launcher.recipe", "launcher.catalog", "launcher.plan", "launcher.job")
    act = "\n".join(f"import {name}" for name in [*core, "launcher.errors", "launcher.units", "launcher.registry"])

    assert foreign_packages(act, tmp_path) == set()


def test_imports_point_down() -> None:
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"

    done = subprocess.run([sys.executable, "-c", lint], capture_output=True, text=True, cwd=ROOT, timeout=120)

    assert done.returncode == 0, done.stdout
