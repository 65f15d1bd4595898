"""The frame around the verbs: help, near misses, exit codes, streams, colours, and what a defect of ours looks like."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from importlib import import_module
from typing import TYPE_CHECKING

import click
import pytest

from launcher.cli.invocation import Verb
from launcher.cli.main import VERBS
from tests.cli.conftest import assert_golden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Cli

LAUNCHER = [sys.executable, "-m", "launcher"]


def commands() -> Iterator[tuple[str, click.Command]]:
    for verb in VERBS:
        command: click.Command = import_module(f"launcher.cli.{verb}").command
        yield verb, command
        if isinstance(command, click.Group):
            yield from ((f"{verb} {name}", each) for name, each in command.commands.items())


def test_help_is_the_table_of_verbs(cli: Cli) -> None:
    text = cli("--help").out

    assert text == cli().out == cli("-h").out
    assert [verb for verb in VERBS if f"\n  {verb} " not in text] == []


def test_help_of_submit(cli: Cli) -> None:
    assert_golden(cli("submit", "--help").out, "submit_help.txt")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, cli: Cli) -> None:
    outcome = cli(verb, "--help")

    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: launcher {verb}")


def test_every_verb_answers_in_json() -> None:
    without = [name for name, command in commands() if not isinstance(command, click.Group | Verb)]

    assert without == []


def test_a_misspelt_verb_gets_its_near_misses(cli: Cli) -> None:
    outcome = cli("plna", "gpt/13b")

    assert outcome.code == 2
    assert outcome.out == ""
    assert "launcher has no verb 'plna'" in outcome.err
    assert "try      launcher plan\n" in outcome.err


def test_a_misspelt_verb_of_a_group_gets_its_near_misses(cli: Cli) -> None:
    outcome = cli("data", "prepar")

    assert outcome.code == 2
    assert "launcher data has no verb 'prepar'" in outcome.err
    assert "try      launcher data prepare\n" in outcome.err


def test_a_misspelt_option_gets_its_near_misses(cli: Cli) -> None:
    outcome = cli("submit", "gpt/tiny", "--dry-rnu")

    assert outcome.code == 2
    assert "launcher submit has no option --dry-rnu" in outcome.err
    assert "try      --dry-run\n" in outcome.err


def test_an_option_without_its_value_is_a_fault_like_any_other(cli: Cli) -> None:
    outcome = cli("logs", "latest", "--rank", "first")

    assert outcome.code == 2
    assert "error: invalid value for '--rank': 'first' is not a valid integer range" in outcome.err


def test_an_error_in_json_has_every_member(cli: Cli) -> None:
    outcome = cli("explain", "paralelism.zero_stage", "--json")

    assert outcome.code == 2
    assert outcome.err == ""
    error = outcome.document["error"]
    assert (error["code"], error["message"]) == ("usage", "no key 'paralelism.zero_stage'")
    assert set(error["faults"][0]) >= {"what", "keys", "where", "allowed", "try"}


def test_wrong_options_are_told_in_json_too(cli: Cli) -> None:
    outcome = cli("plan", "--nope", "--json")

    assert outcome.code == 2
    assert outcome.document["error"]["faults"][0]["what"] == "launcher plan has no option --nope"


@pytest.fixture
def broken_verb(monkeypatch: pytest.MonkeyPatch) -> str:
    """A verb with a defect: it raises what nobody expects, with a secret in it."""

    @click.command(cls=Verb)
    @click.argument("words", nargs=-1)
    def command(words: tuple[str, ...]) -> None:
        raise ZeroDivisionError("token hf_abcdefghijklmnop")

    module = types.ModuleType("launcher.cli.broken")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "launcher.cli.broken", module)
    monkeypatch.setitem(VERBS, "broken", "Has a defect.")
    return "broken"


def test_a_defect_is_one_line_and_a_file_without_secrets(broken_verb: str, cli: Cli, launcher_home: Path) -> None:
    outcome = cli(broken_verb, "environment.variables.HF_TOKEN=abc123")

    (file,) = (launcher_home / "debug").iterdir()
    assert outcome.code == 70
    assert outcome.err == f"error: unexpected ZeroDivisionError: the traceback is in {file}\n"
    trace = file.read_text(encoding="utf-8")
    assert "ZeroDivisionError" in trace
    assert "launcher broken environment.variables.HF_TOKEN=[REDACTED]" in trace
    assert "hf_abc" not in trace


def test_a_defect_is_told_in_json(broken_verb: str, cli: Cli) -> None:
    outcome = cli(broken_verb, "--json")

    assert outcome.code == 70
    assert outcome.document["error"]["code"] == "defect"


def test_a_defect_keeps_its_traceback_under_debug(broken_verb: str, cli: Cli) -> None:
    with pytest.raises(ZeroDivisionError):
        cli(broken_verb, "--debug")


def test_a_home_that_cannot_be_written_hides_no_defect(
    broken_verb: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAUNCHER_HOME", str(tmp_path / "file"))

    outcome = cli(broken_verb)

    assert outcome.code == 70
    assert "unexpected ZeroDivisionError: no traceback could be written (Not a directory)" in outcome.err


def test_a_package_that_is_not_installed_names_the_extra(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("launcher.training.data")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)

    outcome = cli("data", "show", "corpus")

    assert outcome.code == 4
    assert "numpy is not installed" in outcome.err
    assert "pip install 'launcher[local]'" in outcome.err


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{' '.join(LAUNCHER)} explain model | head -n 1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)

    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in {"0", "141"}


def test_ctrl_c_is_130_without_a_traceback(cli: Cli, launcher_home: Path, tmp_path: Path) -> None:
    (tmp_path / "sleep.py").write_text("import time\nprint('awake', flush=True)\ntime.sleep(60)\n")
    submitted = cli("submit", "gpt/tiny", f"entry.script={tmp_path / 'sleep.py'}", "--json").document
    logs = subprocess.Popen(
        [*LAUNCHER, "logs", "-f", submitted["handle"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert logs.stdout is not None
    assert "awake" in logs.stdout.readline()

    logs.send_signal(signal.SIGINT)

    _, talk = logs.communicate(timeout=20)
    assert (logs.returncode, talk.strip()) == (130, "")


def test_colour_is_for_terminals_alone() -> None:
    done = subprocess.run([*LAUNCHER, "plna"], capture_output=True, text=True, timeout=60)

    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(("no_color", "is_painted"), [("", True), ("1", False)])
def test_a_terminal_is_painted_unless_no_color_is_set(no_color: str, is_painted: bool) -> None:
    import pty

    master, slave = pty.openpty()
    environment = os.environ | {"NO_COLOR": no_color, "TERM": "xterm"}
    subprocess.run([*LAUNCHER, "plna"], stderr=slave, stdout=slave, env=environment, timeout=60)
    os.close(slave)

    assert ("\x1b[" in os.read(master, 4096).decode()) is is_painted
    os.close(master)


def test_a_terminal_that_lacks_a_letter_is_shown_its_code() -> None:
    command = [*LAUNCHER, "recipes", "show", "gpt/tiny", "description=模型"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}

    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)

    assert r"\u6a21\u578b" in done.stdout


def test_the_module_and_the_script_are_one_command() -> None:
    done = subprocess.run([*LAUNCHER, "explain", "name", "--json"], capture_output=True, text=True, timeout=60)

    assert json.loads(done.stdout)["key"] == "name"
