"""The line that is shown while a run goes on."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click

from launcher.cli.follow import progress_lines
from launcher.runs.watch import Progress
from launcher.units import GIB
from tests.cli.test_plan_text import a_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

SLEEPY = "import time; print('awake', flush=True); time.sleep(60)"


def lines_of(progress: Progress) -> list[str]:
    return [click.unstyle(line) for line in progress_lines(progress, a_plan())]


def test_measured_figures_stand_beside_planned_ones() -> None:
    progress = Progress(
        state="Running",
        step=1840,
        total_steps=12_000,
        loss=3.4123,
        learning_rate=2.9e-4,
        tokens_per_second=412_000,
        mfu=0.412,
        peak_memory_bytes=61 * GIB,
        dollars=1650,
        elapsed_seconds=4 * 3600 + 12 * 60,
        eta_seconds=23 * 3600 + 20 * 60,
        last_checkpoint_step=1800,
    )

    assert lines_of(progress) == [
        "Running    step 1,840/12,000   loss 3.412   lr 0.00029   412 k tokens/s (planned 1.02 M)   "
        "MFU 41.2 % (planned 43.8)   mem 61 GiB (planned 58.7 GiB)",
        "           4 h 12 m   $1,650   ETA 23 h 20 m   last checkpoint 1,800",
    ]


def test_before_the_first_step_the_line_says_what_is_waited_for() -> None:
    assert lines_of(Progress(state="Queued", reason="no free nodes", elapsed_seconds=42)) == [
        "Queued     42 s   no free nodes"
    ]
    stages = (("started", 0.2), ("rendezvous and model", 6.1))
    assert lines_of(Progress(state="Running", elapsed_seconds=8, stages=stages)) == [
        "Running    8 s   started 0.20 s, rendezvous and model 6.10 s"
    ]


class Terminal:
    """A ``launcher`` command on a terminal of its own."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launcher", *arguments],
            stdin=slave, stdout=slave, stderr=slave, cwd=folder, start_new_session=True,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def wait_for(self, text: str, *, seconds: float = 30) -> None:
        """Read until ``text`` was shown."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._master], [], [], 0.1)[0]:
                self.shown += os.read(self._master, 65536).decode()

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """The exit code."""
        return self.process.wait(timeout=60)


def test_ctrl_c_on_a_terminal_asks_and_the_run_can_be_left_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SLEEPY)
    terminal = Terminal("submit", "gpt/tiny", "entry.script=script.py", "--follow", folder=tmp_path)
    terminal.wait_for("Running")

    terminal.interrupt()
    terminal.wait_for("goes on. Now (detach, cancel, stay) [detach]")
    terminal.type("\n")
    terminal.wait_for("still running: launcher logs -f local:gpt-tiny-")

    assert terminal.end() == 130
    assert cli("status", "--json").document["state"] == "Running"


def test_ctrl_c_on_a_terminal_asks_and_the_run_can_be_ended(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SLEEPY)
    terminal = Terminal("submit", "gpt/tiny", "entry.script=script.py", "--follow", folder=tmp_path)
    terminal.wait_for("Running")

    terminal.interrupt()
    terminal.wait_for("[detach]")
    terminal.type("cancel\n")
    terminal.wait_for("Canceled")

    assert terminal.end() == 1
    assert cli("status", "--json").document["state"] == "Canceled"


def test_money_is_confirmed_on_a_terminal_and_no_is_an_answer(tmp_path: Path, cli: Cli) -> None:
    words = ("gpt/tiny", "cluster=nd_h100_v5", "training.micro_batch_size=2", "training.precision=bf16")
    terminal = Terminal("submit", *words, folder=tmp_path)

    terminal.wait_for("Submit? [y/N]")
    terminal.type("n\n")

    assert "This will use 1 x Standard_ND96isr_H100_v5" in terminal.shown.replace("\r\n", " ")
    assert terminal.end() == 130
    assert cli("list", "--json").document == {"runs": []}


def test_without_a_terminal_an_interrupted_watch_leaves_the_run_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SLEEPY)
    command = [sys.executable, "-m", "launcher", "submit", "gpt/tiny", "entry.script=script.py", "--follow"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stderr is not None
        while "Running" not in watch.stderr.readline():
            assert watch.poll() is None

        watch.send_signal(signal.SIGINT)

        assert "still running: launcher logs -f local:" in watch.stderr.read()
    assert watch.returncode == 130
    assert cli("status", "--json").document["state"] == "Running"
