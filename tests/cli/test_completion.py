"""What TAB offers: asked through the scripts' own protocol, and once through a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

LAUNCHER = [sys.executable, "-m", "launcher"]


def offered(shell: str, *words: str, position: int | None = None) -> list[str]:
    """What the last of ``words`` (or what stands at ``position``) may become, in ``shell``'s own form."""
    last = {"zsh": str(len(words) - 1), "bash": str(len(words) - 1), "fish": words[-1]}[shell]
    environment = os.environ | {
        "_LAUNCHER_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": last if position is None else str(position),
    }
    done = subprocess.run(LAUNCHER, capture_output=True, text=True, env=environment, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.splitlines()


def fish(*words: str) -> list[str]:
    """The candidates without their type and description."""
    return [line.split(",", 1)[1].split("\t")[0] for line in offered("fish", *words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("launcher", "expl"), ["explain"]),
        (("launcher", "plan", "gpt/tin"), ["gpt/tiny"]),
        (("launcher", "plan", "--js"), ["--json"]),
        (("launcher", "plan", "training.precision=b"), ["training.precision=bf16"]),
        (("launcher", "plan", "gpt/tiny", "cluster=local_"), ["cluster=local_cpu", "cluster=local_gpu"]),
        (("launcher", "submit", "training.optimizer.beta"), ["training.optimizer.beta1=", "training.optimizer.beta2="]),
        (("launcher", "submit", "training.compile="), ["training.compile=true", "training.compile=false"]),
        (("launcher", "explain", "parallelism.zero"), ["parallelism.zero_stage"]),
        (("launcher", "logs", "la"), ["latest"]),
        (("launcher", "data", "pre"), ["prepare"]),
    ],
)
def test_a_word_is_completed(words: tuple[str, ...], expected: list[str]) -> None:
    assert fish(*words) == expected


def test_a_team_folder_is_completed_from_once_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "ours.yaml").write_text("name: ours\n")

    assert fish("launcher", "plan", "--recipes", str(tmp_path), "our") == ["ours"]


def test_zsh_gets_the_meaning_of_a_key() -> None:
    assert offered("zsh", "launcher", "plan", "training.seed") == [
        "plain",
        "training.seed=",
        "Seed of weights, data order and dropout.",
    ]


def test_completing_loads_neither_hydra_nor_rich() -> None:
    code = (
        "import sys; from launcher.cli.candidates import recipe_candidates; "
        "assert len(recipe_candidates('', ())) > 100; "
        "assert not {'hydra', 'omegaconf', 'yaml', 'rich'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("launcher plan cluster = local_", "local_cpu local_gpu"),
        ("launcher plan training.precision = b", "bf16"),
        ("launcher plan gpt/tin", "gpt/tiny"),
        ("launcher plan gpt/tiny cluster = azureml : ", ""),
    ],
)
def test_bash_completes_words_it_cuts_at_equals_signs(line: str, expected: str, tmp_path: Path, cli: Cli) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    (tmp_path / "launcher").write_text(f'#!{bash}\nexec "{sys.executable}" -m launcher "$@"\n')
    (tmp_path / "launcher").chmod(0o755)
    # compopt works inside a completion only; bash itself cuts the line at COMP_WORDBREAKS as ``line`` is cut here.
    session = f"""
        compopt() {{ :; }}
        {cli("completion", "bash").out}
        COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _launcher_completion launcher
        echo "${{COMPREPLY[*]}}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        [bash, "--norc", "-c", session], capture_output=True, text=True, env=os.environ | {"PATH": path}, timeout=60
    )

    assert (done.stdout.strip(), done.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str, cli: Cli) -> None:
    outcome = cli("completion", shell)

    assert outcome.code == 0
    assert f"_LAUNCHER_COMPLETE={shell}_complete" in outcome.out


def test_an_unknown_instruction_is_refused() -> None:
    environment = os.environ | {"_LAUNCHER_COMPLETE": "tcsh_complete"}

    assert subprocess.run(LAUNCHER, env=environment, timeout=60).returncode == 1
