"""submit, status, logs, cancel and list, on real runs of a team's own script: quick to start, quick to end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Cli

QUICK = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
SLEEPY = "import time; print('awake', flush=True); time.sleep(60)"
BROKEN = "import os, sys; sys.exit(3 if os.environ['RANK'] == '1' else 0)"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """An override that runs the given Python text, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> str:
        Path("script.py").write_text(text)
        return "entry.script=script.py"

    return write


def submit(cli: Cli, *words: str) -> str:
    """The handle of a run."""
    outcome = cli("submit", "gpt/tiny", *words, "--json")
    assert outcome.code == 0, outcome
    handle: str = outcome.document["handle"]
    return handle


def state_at_the_end(cli: Cli, handle: str) -> str:
    """The state once the run has ended."""
    deadline = time.monotonic() + 30
    while (state := cli("status", handle, "--json").document["state"]) not in {"Completed", "Failed", "Canceled"}:
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    return str(state)


def test_submit_returns_at_once_with_the_handle_and_what_to_do_next(cli: Cli, script: Callable[[str], str]) -> None:
    outcome = cli("submit", "gpt/tiny", script(SLEEPY))

    assert outcome.code == 0
    first, *rest = outcome.out.splitlines()
    handle = first.split()[1]
    assert handle.startswith("local:gpt-tiny-")
    assert [line.split()[-3:] for line in rest][1:] == [
        ["launcher", verb, handle] for verb in ("status", "report", "cancel")
    ]
    assert "memory per GPU" in outcome.err
    assert cli("status", handle, "--json").document["state"] in {"NotStarted", "Preparing", "Running"}


def test_submit_in_json_has_the_documented_names(cli: Cli, script: Callable[[str], str]) -> None:
    outcome = cli("submit", "gpt/tiny", script(QUICK), "--json")

    assert set(outcome.document) == {"handle", "name", "attempt", "state", "url"}
    assert outcome.document["handle"] == f"local:{outcome.document['name']}"
    assert outcome.document["attempt"] == 1
    assert outcome.document["url"].startswith("file:///")
    assert outcome.err == ""


def test_a_run_of_a_single_recipe_starts_without_a_sweep_flag(cli: Cli, script: Callable[[str], str]) -> None:
    """https://github.com/hydra-ecosystem/hydra/issues/851: -m was needed for the configured launcher to be used."""
    handle = submit(cli, script(QUICK))

    assert state_at_the_end(cli, handle) == "Completed"
    assert sorted(cli("logs", handle).out.splitlines()) == ["[rank 0] rank 0 of 2", "[rank 1] rank 1 of 2"]


def test_status_logs_and_list_mean_the_newest_run_and_say_so(cli: Cli, script: Callable[[str], str]) -> None:
    first = submit(cli, script(QUICK), "name=first")
    second = submit(cli, script(QUICK), "name=second")
    state_at_the_end(cli, second)

    status = cli("status")
    logs = cli("logs", "latest", "--rank", "1")

    assert (status.code, logs.code) == (0, 0)
    assert status.err == logs.err == f"latest is {second}\n"
    assert status.out == f"Completed  {second}\n"
    assert logs.out == "rank 1 of 2\n"
    assert [run["handle"] for run in cli("list", "--json").document["runs"]] == [second, first]


def test_a_handle_may_be_shortened_while_it_is_unique(cli: Cli, script: Callable[[str], str]) -> None:
    handle = submit(cli, script(QUICK), "name=alone")

    assert cli("status", "alone", "--json").document["handle"] == handle


def test_logs_follow_a_run_to_its_end(cli: Cli, script: Callable[[str], str]) -> None:
    handle = submit(cli, script("import time; print('a', flush=True); time.sleep(1); print('b')"))

    outcome = cli("logs", "-f", handle, "--rank", "0")

    assert outcome.out == "a\nb\n"
    assert cli("status", handle, "--json").document["state"] in {"Finalizing", "Completed"}


def test_logs_in_json_are_one_document(cli: Cli, script: Callable[[str], str]) -> None:
    handle = submit(cli, script(QUICK))
    state_at_the_end(cli, handle)

    assert cli("logs", handle, "--rank", "0", "--json").document == {
        "handle": handle,
        "rank": 0,
        "lines": ["rank 0 of 2"],
    }


def test_cancel_ends_a_run_and_is_harmless_twice(cli: Cli, script: Callable[[str], str]) -> None:
    handle = submit(cli, script(SLEEPY))

    first, second = cli("cancel", handle), cli("cancel", handle, "--json")

    assert (first.code, second.code) == (0, 0)
    assert first.out.startswith(f"Canceled   {handle}")
    assert second.document["state"] == "Canceled"


def test_cancel_wants_to_be_told_which_run(cli: Cli) -> None:
    outcome = cli("cancel")

    assert outcome.code == 2
    assert "missing argument 'HANDLE'" in outcome.err


@pytest.mark.parametrize("verb", ["status", "logs", "cancel", "report"])
def test_an_unknown_run_is_6(verb: str, cli: Cli) -> None:
    outcome = cli(verb, "local:nobody-1")

    assert outcome.code == 6
    assert "local:nobody-1" in outcome.err


@pytest.mark.parametrize("verb", ["status", "logs", "report"])
def test_no_newest_run_is_6(verb: str, cli: Cli) -> None:
    outcome = cli(verb)

    assert outcome.code == 6
    assert "nothing was submitted from here yet" in outcome.err


def test_list_of_nothing(cli: Cli) -> None:
    assert cli("list").out == "nothing was submitted from here yet\n"
    assert cli("list", "--json").document == {"runs": []}


def test_follow_ends_with_0_when_the_run_completes(cli: Cli, script: Callable[[str], str]) -> None:
    outcome = cli("submit", "gpt/tiny", script(QUICK), "--follow")

    assert outcome.code == 0
    assert outcome.out.startswith("Completed  local:gpt-tiny-")


def test_follow_ends_with_1_when_the_run_fails(cli: Cli, script: Callable[[str], str]) -> None:
    outcome = cli("submit", "gpt/tiny", script(BROKEN), "--follow")

    assert outcome.code == 1
    assert outcome.out.startswith("Failed     local:gpt-tiny-")
    assert "rank 1 exited with code 3" in outcome.out


def test_follow_in_json_has_the_state_at_the_end(cli: Cli, script: Callable[[str], str]) -> None:
    outcome = cli("submit", "gpt/tiny", script(BROKEN), "--follow", "--json")

    assert outcome.code == 1
    assert outcome.document["state"] == "Failed"


def test_follow_ends_with_124_when_time_is_up(cli: Cli, script: Callable[[str], str]) -> None:
    outcome = cli("submit", "gpt/tiny", script(SLEEPY), "limits.timeout_hours=0.0003", "--follow", "--json")

    assert outcome.code == 124


def test_a_dry_run_starts_nothing(cli: Cli, script: Callable[[str], str], launcher_home: Path) -> None:
    outcome = cli("submit", "gpt/tiny", script(QUICK), "--dry-run")

    assert outcome.code == 0
    assert "export WORLD_SIZE=2" in outcome.out or "WORLD_SIZE=2" in outcome.out
    assert not (launcher_home / "runs").exists()
    assert cli("list", "--json").document == {"runs": []}


def test_a_dry_run_shows_no_secret(cli: Cli, script: Callable[[str], str]) -> None:
    """https://github.com/unslothai/unsloth/pull/11100: tokens were printed by a dry run."""
    secrets = ("environment.variables.AZURE_STORAGE_KEY=k123456", "environment.variables.HF_TOKEN=hf_TESTTESTTEST")
    outcome = cli("submit", "gpt/tiny", script(QUICK), *secrets, "environment.variables.NCCL_DEBUG=INFO", "--dry-run")

    assert "k123456" not in outcome.out + outcome.err
    assert "hf_TESTTESTTEST" not in outcome.out + outcome.err
    assert "AZURE_STORAGE_KEY" in outcome.out
    assert "[REDACTED]" in outcome.out
    assert "INFO" in outcome.out


def test_the_run_itself_gets_the_secret(cli: Cli, script: Callable[[str], str]) -> None:
    show = "import os; print(os.environ['MY_TOKEN'][::-1])"
    handle = submit(cli, script(show), "environment.variables.MY_TOKEN=abc123")
    state_at_the_end(cli, handle)

    assert cli("logs", handle, "--rank", "0").out == "321cba\n"


def test_a_plan_with_errors_is_not_submitted(cli: Cli) -> None:
    outcome = cli("submit", "gpt/tiny", "training.global_batch_size=17")

    assert outcome.code == 3
    assert outcome.err.endswith("Nothing was submitted.\n")
    assert cli("list", "--json").document == {"runs": []}


def test_a_plan_over_the_budget_is_5(cli: Cli) -> None:
    outcome = cli("submit", "gpt/tiny", "cluster.price_dollars_per_hour=1000", "limits.budget_dollars=1")

    assert outcome.code == 5
    assert "more than limits.budget_dollars $1.00" in outcome.err
    assert "--over-budget" in outcome.err


def test_a_plan_over_the_budget_runs_when_told_to(cli: Cli, script: Callable[[str], str]) -> None:
    dear = ("cluster.price_dollars_per_hour=1000", "limits.budget_dollars=1", "--over-budget")

    assert state_at_the_end(cli, submit(cli, script(QUICK), *dear)) == "Completed"


def test_money_is_not_spent_without_a_word(cli: Cli) -> None:
    outcome = cli("submit", "gpt/tiny", "cluster=nd_h100_v5", "training.micro_batch_size=2")

    assert outcome.code == 2
    assert "Nobody is here to confirm it" in outcome.err
    assert "try      --yes" in outcome.err


def test_submit_without_a_recipe_asks_which(cli: Cli) -> None:
    outcome = cli("submit")

    assert outcome.code == 2
    assert "which recipe?" in outcome.err


def test_a_run_that_left_no_checkpoint_cannot_be_continued(cli: Cli, script: Callable[[str], str]) -> None:
    handle = submit(cli, script(QUICK))
    state_at_the_end(cli, handle)

    outcome = cli("submit", "--resume", handle)

    assert outcome.code == 1
    assert f"{handle} left no checkpoint" in outcome.err


def test_a_run_that_goes_on_cannot_be_continued(cli: Cli, script: Callable[[str], str]) -> None:
    handle = submit(cli, script(SLEEPY))

    outcome = cli("submit", "--resume", handle)

    assert outcome.code == 2
    assert f"launcher cancel {handle}" in outcome.err
