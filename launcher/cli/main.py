"""The ``launcher`` command: which verbs there are, and what the shell sees when one ends.

A verb is one file of this folder with a ``command``, and one line of ``VERBS``; it is imported when it is asked for.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import TYPE_CHECKING

import click

from launcher import __version__
from launcher.cli.invocation import Invocation, VerbGroup, prefers_color
from launcher.cli.terminal import width
from launcher.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

VERBS: dict[str, str] = {
    "plan": "What follows from a recipe: memory, time, dollars, and what is wrong with it.",
    "search": "The best layouts, VM sizes and node counts of a recipe, and why.",
    "submit": "Plan a recipe and run it: on this machine, or on Azure ML.",
    "smoke": "A recipe of any size rehearsed here: every axis as 2, trained, killed, resumed.",
    "status": "Where a run stands, and why.",
    "logs": "What a run's ranks print; -f follows.",
    "watch": "A run until it ends; --resubmit carries it over preemptions and bad nodes.",
    "diagnose": "Why a run waits, or why it died, and what to do next.",
    "cancel": "End a run; nothing is left running.",
    "list": "Runs of this machine's journal, newest first.",
    "report": "A run's measured figures beside the planned ones.",
    "audit": "Measured step times and memory beside predicted ones: tables, or your own runs.",
    "calibrate": "Constants of your own stack from your own runs, as a choice a recipe can name.",
    "export": "A run's weights for others: a Hugging Face folder, an ONNX model, peft adapters.",
    "generate": "What a run's model makes of a prompt.",
    "evaluate": "A run's loss and perplexity on held-out text, or lm-evaluation-harness tasks.",
    "diff": "Two recipes or runs: what differs, and what that does to memory, time and dollars.",
    "recipes": "Recipes to start from: list, search, show.",
    "explain": "A recipe key: meaning, type, allowed values, default, and where its value comes from.",
    "download": "What a run on Azure ML left: checkpoints, metrics, logs.",
    "open": "A run's page in the studio, or its folder.",
    "models": "Checkpoints of runs as versioned models of the workspace.",
    "reconcile": "What became of submissions nobody got an answer for.",
    "cluster": "Clusters of the workspace: create, show, scale, delete.",
    "gpus": "GPU sizes of the workspace's region: quota, nodes left, clusters, price.",
    "doctor": "Whether this machine can submit to Azure ML, and what mends it.",
    "eject": "The job as plain Azure ML files, with no dependency on us.",
    "emulator": "A command run inside an emulated Azure ML: no account, no cost.",
    "data": "Tokenize text into training shards, and look into them.",
    "completion": "The completion script of bash, zsh or fish.",
}
"""Verb -> the line ``launcher --help`` shows, in the order it shows them."""


class Verbs(VerbGroup):
    """The verbs by file name. Listing and completing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in reading order."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import ``launcher/cli/VERB.py`` and take its ``command``."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"launcher.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs that begin with ``incomplete``, else our own options."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(verb, help=line) for verb, line in VERBS.items() if verb.startswith(incomplete)]


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="VERB [RECIPE] [KEY=VALUE ...] [--OPTIONS]",
    options_metavar="",
    epilog="What has '=' is the recipe's, what has '--' is ours. 'launcher VERB --help' says more.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def launcher() -> None:
    """Plan, launch and track distributed training, on Azure ML or on this machine."""


def run(arguments: Sequence[str]) -> int:
    """One command from its arguments to its exit code; whatever goes wrong is told on the way."""
    invocation = Invocation(json="--json" in arguments, debug="--debug" in arguments)
    try:
        color = prefers_color(sys.stdout)
        with launcher.make_context(
            "launcher", list(arguments), obj=invocation, color=color, terminal_width=width()
        ) as context:
            launcher.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except BrokenPipeError:
        return _hang_up()
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    except Exception as error:
        from launcher.cli.failure import tell

        return tell(error, arguments, invocation)
    return ExitCode.DONE


def main() -> None:
    """The console script; ``_LAUNCHER_COMPLETE=bash_complete`` (set by the completion script) completes instead."""
    instruction = os.environ.get("_LAUNCHER_COMPLETE")
    if instruction:
        from launcher.cli.completion import answer_shell

        sys.exit(answer_shell(launcher, instruction))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a log line may hold what this terminal cannot show
    sys.exit(run(sys.argv[1:]))


def _hang_up() -> int:
    """The reader of our output left: end quietly, with the status the shell gives to SIGPIPE."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + 13
