"""``launcher reconcile``: what became of submissions nobody got an answer for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli import terminal
from launcher.cli.handles import handle_argument
from launcher.cli.invocation import Invocation, Verb
from launcher.errors import ExitCode

if TYPE_CHECKING:
    from launcher.runs.reconcile import Settled


@click.command(cls=Verb)
@handle_argument(required=False)
@click.pass_obj
def command(invocation: Invocation, handle: str | None) -> None:
    """Ask the service about every submission whose outcome is open, or about HANDLE, and write down the answer.

    Exit code 75 while something is still open: the service may show a job some minutes after it was accepted.

    launcher reconcile
    """
    from launcher.runs.reconcile import reconcile

    settled = reconcile(handle)
    document = [{"handle": one.row.handle, "before": one.before, "state": one.row.state} for one in settled]
    invocation.answer({"submissions": document}, lambda: "\n".join(_lines(settled)))
    if any(one.is_open for one in settled):
        raise click.exceptions.Exit(ExitCode.UNKNOWN_OUTCOME)


def _lines(settled: tuple[Settled, ...]) -> list[str]:
    if not settled:
        return ["nothing is open: every submission was accepted or refused"]
    words = {"SUBMITTED": "accepted", "REFUSED": "was never accepted", "PLANNED": "open", "UNKNOWN": "open"}
    return terminal.table((one.row.handle, words[one.row.state], one.row.url or "") for one in settled)
