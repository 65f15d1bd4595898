"""What GitHub runs, as far as it runs here: workflows and actions are whole, and their scripts do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.emulated import Inside

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
ACTIONS = sorted(path.parent for path in GITHUB.glob("actions/*/action.yml"))
FILES = sorted((*GITHUB.glob("workflows/*.yml"), *GITHUB.glob("actions/*/action.yml")))
SMALL = """\
# @package _global_
name: NAME
description: A team's own
tags: {scales: "2 3"}
model: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 256}
training: {global_batch_size: 12, micro_batch_size: 1, seq_length: 32, train_steps: 10, precision: fp32}
data: {train: [demo], tokenizer: bytes}
"""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    """Every step of a workflow or action."""
    document = read(path)
    jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
    return [step for job in jobs for step in job["steps"]]


def script(action: str, words: str) -> str:
    """The one step of an action whose script holds ``words``."""
    (found,) = (step["run"] for step in steps(GITHUB / "actions" / action / "action.yml") if words in step["run"])
    return str(found)


def bash(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does."""
    outputs = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_OUTPUT": str(folder / "outputs")}
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | outputs | variables | {"PATH": tools, "PYTHONPATH": str(ROOT)}
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    done = subprocess.run(("git", *identity, *words), cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(GITHUB).as_posix())
def test_every_step_is_a_script_bash_can_read_or_an_action_by_its_version(path: Path) -> None:
    for step in steps(path):
        if "run" in step:
            plain = re.sub(r"\$\{\{.*?\}\}", "x", step["run"])
            assert subprocess.run(("bash", "-n", "-c", plain), check=False).returncode == 0, step
            # What somebody typed into a form, or named a branch, must not become part of a script.
            assert not re.search(r"\$\{\{\s*(?:inputs|github\.(?:head_ref|event\.\w+\.(?:title|body)))", step["run"]), (
                step
            )
        elif step["uses"].startswith("./"):
            action = read(ROOT / step["uses"] / "action.yml")
            needed = {name for name, one in action["inputs"].items() if one.get("required")}
            assert needed <= step["with"].keys() <= action["inputs"].keys()
        else:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


@pytest.mark.parametrize("action", ACTIONS, ids=lambda path: path.name)
def test_an_action_brings_the_launcher_with_it_for_the_sake_of_other_repositories(action: Path) -> None:
    install = steps(action / "action.yml")[0]["run"]
    paths = re.findall(r"\$GITHUB_ACTION_PATH(/[\w./]+)", install)
    assert paths
    assert all((action / path.lstrip("/")).exists() for path in paths)
    assert (action / paths[-1].lstrip("/") / "pyproject.toml").is_file()


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A repository with two recipes, and a second commit that changes the cluster of one."""
    recipes = tmp_path / "recipes"
    for folder in ("recipe", "cluster"):
        (recipes / folder).mkdir(parents=True)
    (recipes / "cluster" / "ours.yaml").write_text("# Ours.\nbackend: azureml\ninstance_type: Standard_D4s_v3\n")
    (recipes / "recipe" / "one.yaml").write_text(SMALL.replace("NAME", "one"))
    two = SMALL.replace("NAME", "two").replace("name:", "defaults: [override /cluster: ours]\nname:", 1)
    (recipes / "recipe" / "two.yaml").write_text(two)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "before")
    with (recipes / "cluster" / "ours.yaml").open("a") as cluster:
        cluster.write("price_dollars_per_hour: 0.2\n")
    git(tmp_path, "commit", "-qam", "after")
    return tmp_path


def check(team: Path, *, base: str = "HEAD~1", minutes: str = "0") -> subprocess.CompletedProcess[str]:
    """The recipe-check action's script."""
    return bash(
        script("recipe-check", "table.py"), team, GITHUB_ACTION_PATH=str(GITHUB / "actions" / "recipe-check"),
        BASE=base, RECIPES="recipes", SMOKE_MINUTES=minutes, PROCESSES="2",
    )  # fmt: skip


def test_a_recipe_whose_choice_changed_is_planned_at_each_scale_it_declares(team: Path) -> None:
    done = check(team)

    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in (team / "table.md").read_text().splitlines()[2:]]
    assert [(row[0], row[1].split(" (")[0]) for row in rows] == [
        ("| two", f"{nodes} x Standard_D4s_v3") for nodes in (1, 2, 3)
    ]
    assert (team / "summary.md").read_text() == (team / "table.md").read_text()
    assert git(team, "worktree", "list").count("\n") == 0


def test_a_scale_that_cannot_run_fails_the_check_and_is_named(team: Path) -> None:
    recipe = team / "recipes" / "recipe" / "one.yaml"
    recipe.write_text(recipe.read_text().replace("2 3", "5"))  # twelve sequences over five ranks
    git(team, "commit", "-qam", "five")

    done = check(team)

    assert done.returncode == 1
    assert [line for line in (team / "table.md").read_text().splitlines() if line.startswith("| one") and "12" in line]


def test_a_change_that_touches_no_recipe_says_so(team: Path) -> None:
    assert check(team, base="HEAD").returncode == 0
    assert (team / "table.md").read_text() == "No recipe is touched.\n"


@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "said"), [("4", "passed in"), ("0.001", "not rehearsed: the time for it is over")])
def test_a_changed_recipe_is_rehearsed_within_its_minutes(team: Path, minutes: str, said: str) -> None:
    pytest.importorskip("torch", reason="the local extra is not installed")
    done = check(team, minutes=minutes)
    assert done.returncode == 0, done.stderr
    assert said in (team / "table.md").read_text()


def test_a_submission_by_hand_stays_within_its_budget_and_gives_the_handle_on(inside: Inside, tmp_path: Path) -> None:
    pytest.importorskip("azure.ai.ml", reason="the azure extra is not installed")
    submit = script("submit", "launcher submit")
    words = {
        "RECIPE": "gpt/tiny",
        "OVERRIDES": "cluster=azureml_cpu cluster.price_dollars_per_hour=0.2 training.seed=77",
    }

    assert bash(submit, tmp_path, BUDGET="0.0001", **words).returncode == 5
    assert bash("launcher doctor", tmp_path).returncode == 0
    done = bash(submit, tmp_path, BUDGET="5", **words)

    assert done.returncode == 0, done.stderr
    handle = re.fullmatch(r"handle=azureml:(\S+)\n", (tmp_path / "outputs").read_text())
    assert handle is not None
    assert inside.accepted(handle[1]) == [handle[1]]
