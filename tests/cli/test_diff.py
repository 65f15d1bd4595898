"""What ``launcher diff`` says of two recipes or runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


def test_changes_are_told_apart_by_what_they_change(cli: Cli) -> None:
    outcome = cli("diff", "gpt/tiny", "training.seq_length=64", "training.micro_batch_size=4")

    assert outcome.code == 0
    learnt, mapped, planned = outcome.out.split("\n\n")
    assert learnt.splitlines() == ["changes what is learnt (convergence)", "  training.seq_length    128 -> 64"]
    assert mapped.splitlines() == [
        "changes only where and how fast it is computed (mapping)",
        "  training.micro_batch_size    8 -> 4",
    ]
    assert planned.splitlines()[0].split() == ["gpt/tiny", "gpt/tiny", "+", "2", "overrides"]
    # 16 sequences of 128 tokens, then of 64
    assert next(line for line in planned.splitlines() if line.startswith("tokens a step")).split()[3:] == [
        "2.05", "k", "1.02", "k", "-50", "%",
    ]  # fmt: skip


def test_overrides_belong_to_the_name_before_them(cli: Cli) -> None:
    document = cli("diff", "gpt/tiny", "training.seed=1", "gpt/tiny", "training.seed=2", "--json").document

    assert document["changes"] == [{"key": "training.seed", "tag": "convergence", "left": 1, "right": 2}]
    assert document["left"]["planned"] == document["right"]["planned"]


def test_two_that_ask_for_the_same_say_so(cli: Cli) -> None:
    outcome = cli("diff", "gpt/tiny", "gpt/tiny")

    assert outcome.out.startswith("the two ask for the same\n")


def test_a_side_that_has_no_plan_says_why(cli: Cli) -> None:
    document = cli("diff", "gpt/tiny", "training.global_batch_size=17", "--json").document

    assert document["left"]["planned"]["tokens_per_step"] == 16 * 128
    assert document["right"]["planned"] is None
    assert "global batch 17" in document["right"]["refused"]


def test_a_run_is_compared_by_the_recipe_it_ran(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("")
    words = ("entry.script=script.py", "training.seed=3")
    handle = cli("submit", "gpt/tiny", *words, "--json").document["handle"]

    changes = cli("diff", handle, "gpt/tiny", "--json").document["changes"]

    assert {change["key"]: change["left"] for change in changes} == {"training.seed": 3, "entry.script": "script.py"}
    assert cli("diff", handle, "training.seed=4").code == 2


@pytest.mark.parametrize("words", [(), ("gpt/tiny",), ("training.seed=1",), ("a", "b", "c")])
def test_two_sides_are_wanted(words: tuple[str, ...], cli: Cli) -> None:
    outcome = cli("diff", *words)

    assert outcome.code == 2
    assert "which two?" in outcome.err


def test_a_secret_that_differs_is_not_shown(cli: Cli) -> None:
    outcome = cli("diff", "gpt/tiny", "environment.variables.MY_TOKEN=abc123")

    assert "environment.variables.MY_TOKEN" in outcome.out
    assert "abc123" not in outcome.out
